"""What the product imports of hiredis, which has no wheel for WebAssembly. There are no sockets there whose
bytes would have to be packed or read; redis-py sees the version and does without."""

from typing import Any, NoReturn

__version__ = "0.0"


class PushNotification(list[Any]):
    """Never made."""


class Reader:
    def __init__(self, *args: Any, **options: Any) -> None:
        raise OSError("nothing is read under WebAssembly")


def pack_command(arguments: tuple[Any, ...]) -> NoReturn:
    raise OSError("nothing is sent under WebAssembly")
