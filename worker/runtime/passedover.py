"""Hook payloads that do not fit: the run waits on, and whoever sent them should know.

Every body that meets such a payload passes it over, on any worker and in every replay. It is told (logged
and counted) when a body meets it beyond what the run's last settled pass had seen, so once; and before the
pass that meets it can be settled, so always. A worker that dies in between, or is cut off from its run,
leaves it to be told once more by its successor.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from world_redis.entities import settled_of
from world_redis.log import NOTHING_NEW

from ..core.calls import PassedOver
from .host import Host

log = logging.getLogger("worker.session")


class PassedOverPayloads:
    """Those of one run, as one session tells them."""

    def __init__(self, run_id: str, host: Host) -> None:
        self._run_id = run_id
        self._host = host
        self._settled = 0  # decisive events seen by settled passes, as last heard
        self._told: set[int] = set()  # slots; a body of ours that is built anew meets them again

    def forget(self) -> None:
        """Another server answers: its log may have gone another way."""
        self._settled = 0
        self._told.clear()

    def hear(self, record: Mapping[str, bytes]) -> None:
        """The run's record was read."""
        settled = settled_of(record)
        self._settled = settled.decided if settled is not None else 0

    async def tell(self, met: Sequence[PassedOver]) -> None:
        """Tell those which no settled pass has seen; reads the run's record when there may be any.

        Raises what a call of the store raises."""
        if all(each.seen <= self._settled or each.slot in self._told for each in met):
            return
        # A body that rested here while others went on with the run does not know what they told.
        page = await self._host.log.read(self._run_id, seen=NOTHING_NEW)
        if page is not None:
            self.hear(page.record)
        self.tell_unsettled([each for each in met if each.seen > self._settled])

    def tell_unsettled(self, met: Sequence[PassedOver]) -> None:
        """Tell those of which it is known that no settled pass has seen them: of a body that is ahead of the
        log, for one."""
        for each in met:
            if each.slot not in self._told:
                self._told.add(each.slot)
                self._host.telemetry.passed_over_payloads.inc()
                about = {"run_id": self._run_id, "hook": each.hook, "slot": each.slot}
                log.warning("a payload was passed over, its hook waits on: %s", each.reason, extra=about)
