"""What the product uses of orjson, over the standard library: orjson has no wheel for WebAssembly."""

import json
from collections.abc import Callable
from typing import Any

JSONDecodeError = json.JSONDecodeError
JSONEncodeError = TypeError


def dumps(value: Any, default: Callable[[Any], Any] | None = None, option: int = 0) -> bytes:
    """Compact UTF-8. Raises TypeError for what JSON cannot hold."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=default).encode()
    except ValueError as error:  # a lone surrogate
        raise JSONEncodeError(str(error)) from None


def loads(data: bytes | str) -> Any:
    """Raises JSONDecodeError for anything but JSON in UTF-8."""
    try:
        return json.loads(data)
    except UnicodeDecodeError as error:
        raise JSONDecodeError(str(error), "", 0) from None
