"""How much is measured: `TINY` to see that it works, `QUICK` for a look, `FULL` for figures to quote."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

T = TypeVar("T")


class Scale(Enum):
    TINY = "tiny"
    QUICK = "quick"
    FULL = "full"

    def pick(self, tiny: T, quick: T, full: T) -> T:
        return {Scale.TINY: tiny, Scale.QUICK: quick, Scale.FULL: full}[self]
