"""Run ids, partitions, event ids, correlation ids, marks.

A run id is a valid ULID behind ``wrun_`` whose last two characters name the partition (0-1023), so
whoever holds an id knows where the run lives. Correlation ids are stored short (``s12``) and written
long (``step_00000000000000000000000012``) only at the edge.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from functools import lru_cache

PARTITIONS = 1024
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford base 32
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_VALUE = {char: number for number, char in enumerate(_ALPHABET)}
_RUN_ID = re.compile(r"wrun_[0-7][0-9A-HJKMNP-TV-Z]{25}")
_KINDS = {"s": "step_", "w": "wait_", "h": "hook_", "p": "patch_"}


def _encode(number: int, length: int) -> str:
    """`number` in `length` characters, an even number of them: two at a time, the highest first."""
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(5 * length - 10, -10, -10)])


def new_run_id(partition: int) -> str:
    """Mint a run id in `partition` (0-1023): 48 bits of Unix milliseconds, 70 random bits."""
    if not 0 <= partition < PARTITIONS:
        raise ValueError(f"partition {partition} is not in 0..{PARTITIONS - 1}")
    moment = _encode(int(time.time() * 1000) & ((1 << 48) - 1), 10)
    randomness = _encode(int.from_bytes(os.urandom(9)) & ((1 << 70) - 1), 14)
    return f"wrun_{moment}{randomness}{_encode(partition, 2)}"


def is_run_id(text: str) -> bool:
    return _RUN_ID.fullmatch(text) is not None


@lru_cache(maxsize=4096)  # asked several times for every call of a run at work
def partition_of(run_id: str) -> int:
    """The partition a run lives in. Raises ValueError for anything that is not a run id."""
    if not is_run_id(run_id):
        raise ValueError(f"{run_id!r} is not a run id (wrun_ and 26 characters)")
    return _VALUE[run_id[-2]] * 32 + _VALUE[run_id[-1]]


def child_run_id(parent_id: str, step: str) -> str:
    """The id of the child that `step` ("s12") of `parent_id` starts: the same in every replay, in the
    parent's partition. Derived, so that a resend or a second orchestrator never mints another."""
    digest = hashlib.blake2b(f"{parent_id}/{step}".encode(), digest_size=9).digest()
    randomness = _encode(int.from_bytes(digest) & ((1 << 70) - 1), 14)
    return f"{parent_id[:15]}{randomness}{parent_id[-2:]}"


def new_mark() -> bytes:
    """Eight random bytes that identify one transition; a resend keeps them."""
    try:
        return _drawn.pop()
    except IndexError:
        many = os.urandom(8 * 64)
        _drawn.extend(many[at : at + 8] for at in range(8, len(many), 8))
        return many[:8]


_drawn: list[bytes] = []  # ahead: to go to the system for each would cost as much as packing a transition
os.register_at_fork(after_in_child=_drawn.clear)  # or the child would draw the same


def event_id(slot: int) -> str:
    return f"evnt_{slot:026d}"


def long_id(short: str) -> str:
    """``s12`` → ``step_`` and 26 digits."""
    return f"{_KINDS[short[0]]}{int(short[1:]):026d}"


def idempotency_key(run_id: str, short: str) -> str:
    """The one builder of idempotency keys: two runs never share one."""
    return f"{run_id}:{long_id(short)}"
