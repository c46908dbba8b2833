"""The Lua files as callables: text, digest, arguments.

A script's text is ``#!lua flags=…``, the shared prelude ``lua/lib/*.lua`` in name order, then the verb's own
file. `ScriptCall` is one call, resent as it is by whoever carries it: every verb's resend is harmless.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgpack

from .ids import new_mark
from .keys import Keys

_LUA = Path(__file__).parent / "lua"
# A full server must not lapse every lease, nor keep what frees memory waiting.
_FLAGS = dict.fromkeys(("run_read", "queue_stats"), "no-writes") | dict.fromkeys(
    ("renew", "message_defer", "settle"), "allow-oom"
)
_SAME = {"settle": "append"}  # transitions that only settle: the same file under other flags
_BARE = {"namespace_open", "partition_open", "token_move"}  # written without the prelude


class ScriptCall(NamedTuple):
    """One call of a partition script."""

    script: str  # file name without .lua
    partition: int
    queues: Sequence[str]  # queues this call may need; the carrier adds those the partition knows
    runs: Sequence[str]
    args: list[Any]  # the verb's own arguments
    mark: bytes  # 8 random bytes, kept on a resend


class Caller(Protocol):
    """Carries script calls to the store. Production: a pipelined connection. Tests: whatever schedules."""

    async def __call__(self, call: ScriptCall) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Switches:
    inline_ownership: bool = True
    queue_backstop: bool = True


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    text: bytes
    sha: bytes

    @staticmethod
    def load(name: str) -> Script:
        parts = [] if name in _BARE else sorted((_LUA / "lib").glob("*.lua"))
        body = "\n".join(path.read_text() for path in [*parts, _LUA / f"{_SAME.get(name, name)}.lua"])
        flags = f" flags={_FLAGS[name]}" if name in _FLAGS else ""
        text = f"#!lua{flags}\n{body}".encode()
        return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


SCRIPTS: dict[str, Script] = {
    name: Script.load(name) for name in sorted([*(path.stem for path in _LUA.glob("*.lua")), *_SAME])
}


def command(
    keys: Keys,
    call: ScriptCall,
    queues: Sequence[str],
    server: str,
    switches: Switches,
    *,
    resent: bool = False,
) -> list[bytes | str | int]:
    """The arguments of EVALSHA for `call`: ``[sha, numkeys, *KEYS, *ARGV]``. `resent`: an earlier sending of
    this call got no answer, so it may have run."""
    names = keys.script_keys(call.partition, queues, call.runs)
    context = [
        server,
        call.mark,
        base64.urlsafe_b64encode(call.mark).rstrip(b"="),
        int(switches.inline_ownership),
        int(switches.queue_backstop),
        int(resent),
    ]
    return [
        SCRIPTS[call.script].sha,
        len(names),
        *names,
        pack_lua(context),
        pack_lua(list(queues)),
        pack_lua(call.args),
    ]


def script_call(
    script: str,
    partition: int,
    args: list[Any],
    *,
    queues: Sequence[str] = (),
    runs: Sequence[str] = (),
    mark: bytes | None = None,
) -> ScriptCall:
    return ScriptCall(script, partition, queues, runs, args, mark or new_mark())


def pack_lua(value: object) -> bytes:
    """MessagePack as the server's Lua reads it: bytes and text are the same raw strings there."""
    packed: bytes = msgpack.packb(value, use_bin_type=False)
    return packed


def unpack_reply(raw: bytes) -> list[Any]:
    """A script's answer: strings are bytes, the first element is the answer word."""
    reply: list[Any] = msgpack.unpackb(raw, raw=True)
    return reply
