"""Every key: who owns it, its type, its lifetime. Scripts get keys from here and build none.

All keys of a partition, and of every run in it, share the hash tag ``{<namespace>:<partition>}``, so
one script may touch them all. Prefix: ``<namespace>:<LAYOUT>:``; the namespace record alone has no LAYOUT
in its name. A server that holds another LAYOUT of the namespace is refused at connect.

| key | type | holds | lifetime |
|---|---|---|---|
| `namespace` | hash | layout, partitions, one field `worker:<id>` per live worker | for ever |
| `{t..}:token:<token>` | string | a user-chosen hook token: its hook, `<run id>.<hook>` | until released |
| `{t..}:start:<key>` | string | an idempotency key of `start`: the request | retention after its run's end |
| partition `record` | hash | clock, server, amnesty, lease, queues, rescues fired so far | for ever |
| partition `messages` | hash | message id → header; message id + `:p` → payload | until settled |
| partition `open` | zset | run id → created ms, of runs not finished | until finished |
| partition `done` | zset | run id → expiry ms, of finished runs | until expired |
| partition `parked` | hash | run id → reason, since, builds that refused it | until unparked |
| partition `dead` | stream | dead letters | until dropped |
| queue `ready:<queue>` | stream | run messages to hand out, oldest first | until taken |
| queue `steps:<queue>` | stream | step messages to hand out, oldest first | until taken |
| queue `delayed:<queue>` | zset | message id → due ms | until due |
| queue `flight:<queue>` | zset | message id → deadline ms, of this half of its lease | until settled |
| queue `bell:<queue>` | list | at most one element: "there is work" | until rung |
| run `run` | hash | the run record (see entities.py) | retention after its end |
| run `log` | stream | events, entry id `<slot>-0` | retention after its end |
| run `entities` | hash | short id → open step, wait or hook; slots of payloads | retention after its end |
| run `out` | hash | message key → id of the message that waits for it | until the run's end |
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

LAYOUT = "1"
PARTITION_KEYS = ("record", "messages", "open", "done", "parked", "dead")
RUN_KEYS = ("run", "log", "entities", "out")


class QueueKeys(NamedTuple):
    """The keys of one queue in one partition, in the order scripts take them. Run messages and step messages
    wait apart, so that a worker whose step slots are full still sees the runs behind a thousand steps."""

    ready: str
    delayed: str
    flight: str
    bell: str
    steps: str


@dataclass(frozen=True, slots=True)
class Keys:
    """Key builders of one namespace."""

    namespace: str

    @property
    def _prefix(self) -> str:
        return f"{self.namespace}:{LAYOUT}:"

    def namespace_record(self) -> str:
        return f"{self.namespace}:namespace"  # of every layout: it tells which one is in use

    def token(self, token: str) -> str:
        return f"{self._prefix}{{{self.namespace}:t{_spread(token)}}}:token:{token}"

    def start(self, key: str) -> str:
        return f"{self._prefix}{{{self.namespace}:t{_spread(key)}}}:start:{key}"

    def partition(self, partition: int) -> list[str]:
        """In the order of PARTITION_KEYS."""
        tag = self._tag(partition)
        return [f"{tag}:{name}" for name in PARTITION_KEYS]

    def queue(self, partition: int, queue: str) -> QueueKeys:
        tag = self._tag(partition)
        return QueueKeys(*(f"{tag}:{name}:{queue}" for name in QueueKeys._fields))

    def bell(self, partition: int, queue: str) -> str:
        return f"{self._tag(partition)}:bell:{queue}"

    def run(self, partition: int, run_id: str) -> list[str]:
        """In the order of RUN_KEYS."""
        head = f"{self._tag(partition)}:{run_id}:"
        return [head + name for name in RUN_KEYS]

    def done_channel(self, partition: int, run_id: str) -> str:
        """Where the end of a run is published, with its status as the message: a hint, never kept."""
        return f"{self.run(partition, run_id)[0]}:done"

    def script_keys(self, partition: int, queues: Sequence[str], runs: Sequence[str]) -> list[str]:
        """KEYS of every partition script: the partition's, five for each queue, four for each run."""
        keys = self.partition(partition)
        for queue in queues:
            keys += self.queue(partition, queue)
        for run_id in runs:
            keys += self.run(partition, run_id)
        return keys

    def _tag(self, partition: int) -> str:
        return f"{self._prefix}{{{self.namespace}:{partition}}}"


def _spread(text: str) -> int:
    """Registry keys live in a fixed space of 1024 tags, never in "partitions in use": a deployment
    that grows must not move them."""
    return zlib.crc32(text.encode()) % 1024
