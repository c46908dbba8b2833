"""What a session's planner looks at: the body, what is held and runs here, and what the store has listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from world_redis.log import NOTHING_NEW
from world_redis.messages import DEADLINE, TIMER, RunContext
from world_redis.transition import Table

from ..core.calls import Call, ContinuedAsNew, HookCall, Outcome, StepCall
from ..core.dispatch import Here
from ..core.plan import Plan, Scene, plan, plan_steps
from .body import Body
from .parts import Parts


class Planning:
    def __init__(self, parts: Parts) -> None:
        self._run_id, self._host, self._hand, self._executions, self._known, self._tokens = parts

    async def plan(self, body: Body, outcome: Outcome | None, table: Table | None, *, judged: bool) -> Plan:
        """What to write for a quiet body. `judged`: the machinery ends the run, whatever the body wants."""
        fresh = body.fresh
        if outcome is None and table is None and (steps := self._steps_alone(body, fresh)):
            return plan_steps(
                self._context,
                steps,
                self._known.now(),
                inline_free=self._inline_free,
                may_run=self._host.may_run,
            )
        for call in fresh:
            if isinstance(call, HookCall) and call.chosen:
                await self._tokens.ask(call)
        attributes = await self._attributes() if isinstance(outcome, ContinuedAsNew) else {}
        known = self._known
        return plan(
            Scene(
                run_id=self._run_id,
                context=self._context,
                started=known.started,
                fresh=() if judged else fresh,
                open=body.open,
                dropped=body.dropped and body.dropped - known.acted,
                outcome=outcome,
                here=self._here(self._context.spec),
                inline_free=self._inline_free,
                may_run=self._host.may_run,
                conflicts=self._tokens.conflicts,
                waits=known.listened_waits(),
                rearm=TIMER in self._hand.fired or table is not None,
                deadline_fired=DEADLINE in self._hand.fired,
                timer_armed=known.timer_armed,
                table=None if judged else table,
                attributes=attributes,
                now=known.now(),
                entropy=self._host.ports.entropy,
            )
        )

    @property
    def _context(self) -> RunContext:
        assert self._known.context is not None
        return self._known.context

    @property
    def _inline_free(self) -> int:
        running = len(self._executions.running)
        return min(self._host.limits.max_inline_steps - running, self._host.slots.free)

    def _steps_alone(self, body: Body, fresh: Sequence[Call]) -> list[StepCall]:
        """The new steps of a body, when there is nothing else to plan for; else none."""
        known, executions = self._known, self._executions
        more = known.waits or known.timer_armed or self._hand.fired or body.dropped or not known.started
        if more or executions.running or executions.detached:
            return []
        steps = [call for call in fresh if isinstance(call, StepCall) and call.id not in executions.ended]
        return steps if len(steps) == len(fresh) else []

    async def _attributes(self) -> Mapping[str, str]:
        """Those the run was started with, for the run that takes over. No message carries them."""
        found = await self._host.log.read(self._run_id, seen=NOTHING_NEW)
        given: dict[str, str] = orjson.loads((found and found.record.get("attributes")) or b"{}")
        return given

    def _here(self, spec: int) -> Here:
        limits = self._host.limits
        return Here(
            held=self._hand.numbers,
            in_flight=self._executions.ids,
            inline_ownership=limits.inline_ownership,
            queue_backstop=limits.queue_backstop,
            spec=spec,
            detached=self._executions.detached.keys(),
        )
