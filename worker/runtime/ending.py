"""An execution's end that is not recorded yet."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.calls import StepCall
from ..core.ends import StepEnd
from .stepcall import StepRun


@dataclass(frozen=True, slots=True)
class StepEnding:
    call: StepCall
    run: StepRun
    end: StepEnd
    at: float  # seconds, when the code returned
