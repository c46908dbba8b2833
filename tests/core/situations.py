"""Every situation a recorded step can be in when a body is quiet: the full product."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from worker.core.dispatch import Here, Row, row_of
from world_redis.messages import Held
from world_redis.transition import OpenStep

MINE, NUMBER = "m1", 5  # the message this session holds, and under which number
OWNERS = {
    "none": None,
    "mine-earlier": Held(MINE, NUMBER - 1),
    "mine": Held(MINE, NUMBER),
    "mine-later": Held(MINE, NUMBER + 1),
    "another": Held("m2", NUMBER - 1),
}
ID = "s1"
BOTH = (False, True)


@dataclass(frozen=True)
class Case:
    """One point of the product."""

    state: str
    mode: str
    owner: str
    live: bool  # the owner's delivery
    here: bool  # it executes in this session
    ownership: bool  # WORKFLOW_INLINE_OWNERSHIP
    backstop: bool  # WORKFLOW_QUEUE_OWNED_BACKSTOP
    spec: int  # of the run; 0 is one whose record does not say

    @property
    def step(self) -> OpenStep:
        return step_of(self.state, self.mode, owner=OWNERS[self.owner], owner_live=self.live)

    @property
    def row(self) -> Row:
        here = Here({MINE: NUMBER}, {ID} if self.here else set(), self.ownership, self.backstop, self.spec)
        return row_of(self.step, here)


def step_of(state: str, mode: str = "", **given: Any) -> OpenStep:
    step = OpenStep(
        id=ID,
        state=state,
        mode=mode,
        owner=None,
        owner_live=False,
        lease_left=0,
        due=0,
        has_message=False,
        epoch=None,
        starts=1,
        errors=0,
        crashes=0,
        first_started=1,
    )
    return step._replace(**given)


def cases() -> Iterator[Case]:
    modes = {"running": ("inline", "queue", "external", "child")}
    for state in ("created", "retrying", "withdrawn", "running"):
        # A step that is not running may have run before, so its mode says nothing.
        for mode in modes.get(state, ("", "inline", "queue")):
            for owner, spec in product(OWNERS, (0, 5, 6, 7)):
                for live, here, ownership, backstop in product(BOTH, BOTH, BOTH, BOTH):
                    yield Case(state, mode, owner, live, here, ownership, backstop, spec)
