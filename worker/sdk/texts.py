"""Names and other short texts that go into Redis as they are: checked where the user gives them."""

from __future__ import annotations

LONGEST = 512  # bytes of UTF-8


def plain_text(value: object, what: str, *, limit: int = LONGEST) -> str:
    """`value`, when it is text of 1 to `limit` bytes of valid UTF-8.

    Raises:
        ValueError: it is not; the message says what `what` may be.
    """
    if isinstance(value, str) and value:
        try:
            if len(value.encode()) <= limit:
                return value
        except UnicodeEncodeError:
            pass
    raise ValueError(f"{what} {value!r:.80}: it is text of 1 to {limit} bytes, valid as UTF-8")
