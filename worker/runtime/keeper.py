"""The keeper: a thread that renews the deliveries this process is really working on.

Overview. A delivery that is silent for one lease is handed to somebody else, so whoever works on it
must be heard, also while the event loop is busy with a slow callback. The keeper therefore is a thread
with its own synchronous connection, and renews every delivery in `Holdings` at a third of the lease.

Who is authoritative: the store. The renewal script checks the holder; its answer for each delivery is a
word. Anything but ``ok`` is handed to the event loop, which stops the work; the keeper decides nothing.

What it must not do is keep the dead alive: a worker whose event loop hangs would hold its leases for ever,
and every run with them. So it pings the loop, and a loop that has not answered for `stall_after` seconds
ends the process (code 70) with all stacks on stderr; the fleet takes over when the leases lapse.

Failures: Redis away or slow → the round fails after a sixth of the lease and is tried again at once ·
script unknown (server restarted) → loaded again · another server → reconnect, the store starts its
amnesty · code that holds the GIL → neither ping nor renewal runs, the leases lapse, as they should.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from world_redis.keys import Keys
from world_redis.link import connection_options
from world_redis.messages import Held
from world_redis.queue import NOT_RENEWED, renewal, renewed
from world_redis.scripts import SCRIPTS, Switches, arguments, packed_command, unpack_reply

log = logging.getLogger("worker.keeper")

STALLED_EXIT_CODE = 70
_PING = 0.25  # seconds between two looks at the event loop
_NOTED_STALL = 1.0  # seconds of silence worth a log line

OnWord = Callable[[str, int, str], None]  # told (message id, number, word) on the event loop


class Holdings:
    """The deliveries in flight in this process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[int, int]] = {}  # message id → (partition, number)

    def add(self, partition: int, held: Held) -> None:
        """Keep this delivery. A later delivery of the same message takes the earlier one's place."""
        with self._lock:
            self._held[held.message_id] = (partition, held.number)

    def drop(self, partition: int, held: Held) -> None:
        """Keep it no longer; does nothing when the message is held here under another number."""
        with self._lock:
            if self._held.get(held.message_id) == (partition, held.number):
                del self._held[held.message_id]

    def snapshot(self) -> dict[int, list[Held]]:
        """What is held now, by partition."""
        found: dict[int, list[Held]] = {}
        with self._lock:
            for message_id, (partition, number) in self._held.items():
                found.setdefault(partition, []).append(Held(message_id, number))
        return found

    def __contains__(self, held: Held) -> bool:
        with self._lock:
            return self._held.get(held.message_id, (0, 0))[1] == held.number

    def __len__(self) -> int:
        return len(self._held)


class Words:
    """Which words, the store's answers to renewals, are handed on. Not safe to use from two threads."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._handed_on: set[tuple[Held, str]] = set()  # that are not to be handed on again

    def begin(self) -> dict[int, list[Held]]:
        """A round begins: what to renew now, by partition. What was handed on of all others is forgotten."""
        snapshot = self._holdings.snapshot()
        kept = {held for each in snapshot.values() for held in each}
        self._handed_on = {(held, word) for held, word in self._handed_on if held in kept}
        return snapshot

    def to_hand_on(
        self, partition: int, held: Sequence[Held], words: Sequence[str]
    ) -> list[tuple[Held, str]]:
        """Those of `words`, one for each of `held`, that are not ``ok`` and not repeated. What is not renewed
        any more leaves the holdings."""
        return [item for item in zip(held, words, strict=True) if self._note(partition, *item)]

    def _note(self, partition: int, held: Held, word: str) -> bool:
        """Note this word; answers whether it is to be handed on."""
        if word == "ok" or (held, word) in self._handed_on:
            return False
        if word in NOT_RENEWED:
            self._holdings.drop(partition, held)
        elif word != "look":  # the store asks for it no longer once the log was read
            self._handed_on.add((held, word))
        return True


class Renewer:
    """One synchronous connection that renews. Any trouble closes it; the next call opens another."""

    def __init__(
        self,
        url: str,
        keys: Keys,
        consumer: str,
        *,
        timeout: float,
        queues: Callable[[int], Sequence[str]],
    ) -> None:
        self._url, self._keys, self._consumer = url, keys, consumer
        self._timeout = timeout
        self._queues = queues
        self._learned: dict[int, list[str]] = {}  # queues a partition told us of
        self._client: redis.Redis | None = None
        self._server = ""

    def renew(self, partition: int, held: Sequence[Held]) -> list[str]:
        """One word per delivery. Raises RedisError or OSError when there is no answer in time."""
        call = renewal(self._consumer, partition, held)
        try:
            while True:
                self._connect()
                queues = self._known(partition)
                packed = packed_command(self._keys, call, queues, self._server, Switches())
                try:
                    reply = unpack_reply(self._call("EVALSHA", *arguments(packed)))
                except NoScriptError:
                    self._call("SCRIPT", "LOAD", SCRIPTS[call.script].text)
                    continue
                if reply[0] == b"ok":
                    return renewed(reply)
                if reply[0] != b"keys":
                    raise redis.ConnectionError(f"the partition answered {reply[0]!r}")
                self._learned[partition] = [name.decode() for name in reply[1]]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _known(self, partition: int) -> list[str]:
        """The partition's own order first, then what this process serves besides."""
        return list(dict.fromkeys([*self._learned.get(partition, ()), *self._queues(partition)]))

    def _connect(self) -> None:
        if self._client is None:
            options = connection_options(parse_url(self._url)) | {  # type: ignore[no-untyped-call]
                "socket_timeout": self._timeout,
                "socket_connect_timeout": self._timeout,
                "retry": Retry(NoBackoff(), 0),
            }
            pool = redis.ConnectionPool(options.pop("connection_class", redis.Connection), **options)
            self._client = redis.Redis(connection_pool=pool, single_connection_client=True)
            info: Any = self._client.info("server")
            self._server = str(info["run_id"])

    def _call(self, *command: bytes | str) -> Any:
        assert self._client is not None
        return self._client.execute_command(*command)  # type: ignore[no-untyped-call]


class Keeper:
    """Renews `holdings` and watches the event loop. Start and stop it from the loop's thread.

    Args:
        lease: seconds; renewals happen at a third of it.
        queues: partition → queue names its keys are needed of.
        on_word: called on the event loop for every answer but ``ok``: ``cancel`` and ``stop`` (each once a
            delivery), ``look``, or one of `NOT_RENEWED`, after which the delivery is in `holdings` no longer.
        stall_after: seconds of a silent loop that end the process; None: never (debugging).
        on_round_trip: called on the event loop for every renewal sent.
    """

    def __init__(
        self,
        url: str,
        keys: Keys,
        holdings: Holdings,
        *,
        consumer: str,
        lease: float,
        queues: Callable[[int], Sequence[str]],
        on_word: OnWord,
        stall_after: float | None = 60.0,
        on_round_trip: Callable[[], None] = lambda: None,
        on_stall: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._words = Words(holdings)
        self._renewer = Renewer(url, keys, consumer, timeout=max(0.1, lease / 6), queues=queues)
        self._every = lease / 3
        self._lease = lease
        self._on_word = on_word
        self._on_round_trip = on_round_trip
        self._watch = LoopWatch(stall_after, on_stall)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watch.attach(self._loop)
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end. It does within a sixth of the lease, and does not call back any more."""
        self._stopping.set()

    def join(self, timeout: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(timeout)

    @property
    def silent_for(self) -> float:
        """Seconds the event loop has not answered; 0 when it answers."""
        return self._watch.silent_for

    @property
    def healthy(self) -> bool:
        """False from the moment the loop is given up. For a liveness probe; no Redis is involved."""
        return self._watch.healthy

    def _run(self) -> None:
        renewed_at = time.monotonic()
        try:
            while not self._stopping.wait(min(_PING, self._every / 4)):
                self._watch.look()
                if time.monotonic() - renewed_at >= self._every:
                    started = time.monotonic()
                    if self._round(renewed_at):
                        renewed_at = started
        finally:
            self._renewer.close()

    def _round(self, renewed_at: float) -> bool:
        """Renew everything once. False: some of it failed, try again soon."""
        whole = True
        for partition, held in self._words.begin().items():
            try:
                self._on_loop(self._on_round_trip)
                words = self._renewer.renew(partition, held)
            except Exception as error:  # whatever it is: a keeper that ends lets every lease lapse
                left = self._lease - (time.monotonic() - renewed_at)
                about = "cannot renew %d deliveries (%.1f s of lease left): %s"
                known = isinstance(error, (RedisError, OSError))
                log.warning(about, len(held), left, error, exc_info=None if known else error)
                whole = False
                continue
            for item, word in self._words.to_hand_on(partition, held, words):
                self._on_loop(self._on_word, item.message_id, item.number, word)
        return whole

    def _on_loop(self, callback: Callable[..., None], *args: Any) -> None:
        assert self._loop is not None
        if not self._stopping.is_set() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *args)


class LoopWatch:
    """Pings an event loop from another thread."""

    def __init__(self, stall_after: float | None, on_stall: Callable[[float], None]) -> None:
        self._stall_after = stall_after
        self._on_stall = on_stall
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._asked_at: float | None = None  # of the ping that is not answered yet
        self._noted = _NOTED_STALL
        self.healthy = True

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._thread_id = loop, threading.get_ident()

    @property
    def silent_for(self) -> float:
        asked_at = self._asked_at
        return 0.0 if asked_at is None else time.monotonic() - asked_at

    def look(self) -> None:
        """Called by the keeper's thread a few times a second."""
        silent = self.silent_for
        if silent >= self._noted:
            self._noted *= 2
            frame = sys._current_frames().get(self._thread_id)
            where = "".join(traceback.format_stack(frame, limit=12)) if frame else "(no stack)"
            log.warning("the event loop has not answered for %.1f s; it is in:\n%s", silent, where)
        if self._stall_after is not None and silent >= self._stall_after:
            self._give_up(silent)
        if self._asked_at is None and self._loop is not None and not self._loop.is_closed():
            self._asked_at = time.monotonic()
            self._loop.call_soon_threadsafe(self._answered)

    def _answered(self) -> None:
        silent = self.silent_for
        if silent >= _NOTED_STALL:
            self._on_stall(silent)
        self._asked_at, self._noted = None, _NOTED_STALL

    def _give_up(self, silent: float) -> None:
        """Nothing of this process can be trusted to end in order: not the loop, nor what waits for it."""
        self.healthy = False
        log.critical(
            "the event loop has not answered for %.0f s (WORKFLOW_LOOP_STALL_SECONDS): ending this process",
            silent,
        )
        faulthandler.dump_traceback(all_threads=True)
        sys.stderr.flush()
        os._exit(STALLED_EXIT_CODE)
