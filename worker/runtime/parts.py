"""What a session is made of, for those that plan, send and leave for it."""

from __future__ import annotations

from typing import NamedTuple

from .executions import Executions
from .hand import Hand
from .host import Host
from .knowledge import Knowledge
from .tokens import ChosenTokens


class Parts(NamedTuple):
    """One of each for a session, as long as it lives."""

    run_id: str
    host: Host
    hand: Hand
    executions: Executions
    known: Knowledge
    tokens: ChosenTokens
