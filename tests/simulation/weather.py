"""What a seed draws for its whole schedule."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from world_redis.scripts import Switches

LEASE = 3_000  # ms
EPOCH = 1_700_000_000_000  # ms, where every schedule's clock starts
NEVER = 10**9


@dataclass(frozen=True, slots=True)
class Weather:
    """Set before anything happens."""

    calm: bool  # nothing goes wrong
    steps: int  # of the storm
    workers: int
    runs: int
    fault: float  # chance that a call has another fate than a reply
    hurry: float  # chance that time moves on while calls are on their way
    acts: float  # chance of an act from outside
    asking: int  # weight of cancel and terminate among these acts
    switches: Switches
    live_runs: int
    tight: bool  # runs park and steps fail after a few crashes and refusals
    deploys: bool  # some workers run the code before the last deploy
    forgetful: bool  # the server may go back to what it was some time ago
    deferred: bool  # steps may begin before the end of the one before is recorded

    @staticmethod
    def draw(rng: Random) -> Weather:
        calm = rng.random() < 0.2
        return Weather(
            calm=calm,
            steps=rng.choice((40, 80, 160, 300)),
            workers=rng.choice((1, 2, 2, 3)),
            runs=rng.choice((1, 2, 3, 4)),
            fault=0.0 if calm else rng.choice((0.01, 0.04, 0.1)),
            hurry=rng.choice((0.02, 0.1, 0.25)),
            acts=rng.choice((0.02, 0.06, 0.12)),
            asking=rng.choice((0, 0, 0, 1, 4)),
            switches=Switches(rng.random() > 0.08, rng.random() > 0.08),
            live_runs=rng.choice((0, 1, 1000, 1000)),
            tight=not calm and rng.random() < 0.15,
            deploys=rng.random() < 0.2,
            forgetful=not calm and rng.random() < 0.25,
            deferred=rng.random() < 0.5,
        )
