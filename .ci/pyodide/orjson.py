"""The part of orjson that the product uses, over the standard library's json.

orjson has no wheel for this platform. Only the tests under WebAssembly import this file.
"""

import json
from collections.abc import Callable
from typing import Any

JSONDecodeError = json.JSONDecodeError
JSONEncodeError = TypeError


def dumps(value: Any, default: Callable[[Any], Any] | None = None, option: int = 0) -> bytes:
    """Compact UTF-8; raises TypeError for what JSON cannot hold."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=default)
    return text.encode()


def loads(data: bytes | str) -> Any:
    return json.loads(data)
