"""The Lua files as callables: text, digest, arguments.

A script's text is ``#!lua flags=…``, the prelude, the files of ``lua/lib`` it needs in name order, then the
verb's own file. Only what it needs: the server makes each function of a script anew at every call. What only
a function of it needs, by a ``Needs`` line inside, stands there and is made when that function is called.
`ScriptCall` is one call, resent as it is by whoever carries it: every verb's resend is harmless.
"""

from __future__ import annotations

import hashlib
import re
import threading
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgpack
from hiredis import Reader, pack_command

from .ids import new_mark
from .keys import RUN_KEYS, Keys

_LUA = Path(__file__).parent / "lua"
# A full server must not lapse every lease, nor keep what frees memory waiting.
_FLAGS = dict.fromkeys(("run_read", "queue_stats"), "no-writes") | dict.fromkeys(
    ("renew", "message_defer", "settle"), "allow-oom"
)
_SAME = {"settle": "append"}  # transitions that only settle: the same file under other flags
_BARE = {"namespace_open", "partition_open", "token_move"}  # written without the prelude
_INSIDE = r"^ +-- Needs +(\w+)$"  # of a function of a file
_LIB = {path.stem[3:]: path for path in sorted((_LUA / "lib").glob("*.lua"))}
_URL_SAFE = bytes.maketrans(b"+/", b"-_")  # of base64
_LARGE = 1 << 20  # bytes: a packer that has packed more is not kept


class _Packer(threading.local):
    """One for each thread: to make one costs more than to pack a small value. Where msgpack is pure Python,
    the keeper's thread would otherwise write into the middle of what the event loop packs."""

    def __init__(self) -> None:
        self._made = msgpack.Packer(use_bin_type=False)

    def pack(self, value: object) -> bytes:
        """MessagePack as the server's Lua reads it: bytes and text are the same raw strings there."""
        packed: bytes = self._made.pack(value)
        if len(packed) > _LARGE:  # its buffer stays as large
            self._made = msgpack.Packer(use_bin_type=False)
        return packed


pack_lua = _Packer().pack


class ScriptCall(NamedTuple):
    """One call of a partition script."""

    script: str  # file name without .lua
    partition: int
    queues: Sequence[str]  # queues this call may need; the carrier adds those the partition knows
    runs: Sequence[str]
    args: list[Any]  # the verb's own arguments
    mark: bytes  # 8 random bytes, kept on a resend
    meanwhile: Callable[[], object] | None = None  # called when it was sent, each time; must not raise


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
        verb = _LUA / f"{_SAME.get(name, name)}.lua"
        parts = set() if name in _BARE else {"prelude", *needs(verb)}
        files = [*(path for part, path in _LIB.items() if part in parts), verb]
        body = _nested([_filled(path) for path in files])
        flags = f" flags={_FLAGS[name]}" if name in _FLAGS else ""
        text = f"#!lua{flags}\n{body}".encode()
        return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


def _nested(texts: Sequence[str]) -> str:
    """Each text as the body of a function at the end of the one before. What a function uses from outside its
    own file is then handed down to it; side by side, the server would look for it among all the variables of
    the script that any function uses, for each function at every call."""
    return "\nreturn (function()\n".join(texts) + "\nend)()" * (len(texts) - 1)


def _filled(path: Path) -> str:
    """The text of a file, with what its functions need put in its place."""
    return re.sub(_INSIDE, lambda line: _filled(_LIB[line[1]]), path.read_text(), flags=re.M)


def needs_named(path: Path) -> list[str]:
    """The files of ``lua/lib``, without number and suffix, that the ``Needs`` line of `path` names."""
    line = re.search(r"^-- Needs +(.+)$", path.read_text(), flags=re.M)
    return line[1].split() if line else []


def needs_inside(path: Path) -> list[str]:
    """Those that functions of `path` name."""
    return re.findall(_INSIDE, path.read_text(), flags=re.M)


def needs(path: Path) -> set[str]:
    """The files before this one: those it names, and what they and those inside need. Never the prelude,
    which every verb has."""
    named, inside = needs_named(path), needs_inside(path)
    return set(named).union(*(needs(_LIB[name]) for name in [*named, *inside]))


SCRIPTS: dict[str, Script] = {
    name: Script.load(name) for name in sorted([*(path.stem for path in _LUA.glob("*.lua")), *_SAME])
}


def packed_command(
    keys: Keys,
    call: ScriptCall,
    queues: Sequence[str],
    server: str,
    switches: Switches,
    *,
    resent: bool = False,
) -> bytes:
    """``EVALSHA sha numkeys *KEYS *ARGV`` for `call`, as it goes over the wire. `resent`: an earlier sending
    of this call got no answer, so it may have run."""
    opening, names = _opening(keys.namespace, call.script, call.partition, tuple(queues), len(call.runs))
    of_runs = b"".join([_of_run(keys.namespace, call.partition, run_id) for run_id in call.runs])
    context, args = _context(call, server, switches, resent), pack_lua(call.args)
    rest = (len(context), context, names, len(args), args)
    return b"%b%b$%d\r\n%b\r\n%b$%d\r\n%b\r\n" % (opening, of_runs, *rest)


def arguments(packed: bytes) -> list[bytes]:
    """What follows EVALSHA in a packed command, for a client that packs by itself: taken apart again, so that
    commands are made in one place."""
    reader = Reader()
    reader.feed(packed)
    parts: list[bytes] = reader.gets()
    return parts[1:]


@lru_cache(maxsize=1024)
def _opening(
    namespace: str, script: str, partition: int, queues: tuple[str, ...], runs: int
) -> tuple[bytes, bytes]:
    """What is the same for all runs: everything before their keys, and ARGV[2]. It is most of a command."""
    shared = Keys(namespace).script_keys(partition, queues, ())
    count = len(shared) + runs * len(RUN_KEYS)
    opening = _packed("EVALSHA", SCRIPTS[script].sha, count, *shared)
    return b"*%d\r\n%b" % (3 + count + 3, opening), _packed(pack_lua(queues))


@lru_cache(maxsize=1024)
def _of_run(namespace: str, partition: int, run_id: str) -> bytes:
    return _packed(*Keys(namespace).run(partition, run_id))


def _packed(*parts: bytes | str | int) -> bytes:
    """Parts of a command, without the line that counts them."""
    packed: bytes = pack_command(parts)  # type: ignore[arg-type]  # its stub knows one argument alone
    return packed.partition(b"\r\n")[2]


def _context(call: ScriptCall, server: str, switches: Switches, resent: bool) -> bytes:
    prefix = b2a_base64(call.mark)[:11].translate(_URL_SAFE)  # eight bytes, without padding and newline
    return pack_lua([server, call.mark, prefix, switches.inline_ownership, switches.queue_backstop, resent])


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


def unpack_reply(raw: bytes) -> list[Any]:
    """A script's answer: strings are bytes, the first element is the answer word."""
    reply: list[Any] = msgpack.unpackb(raw, raw=True)
    return reply
