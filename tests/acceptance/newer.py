"""A worker of a later release, which reads one more version of the log."""

from tests.acceptance.counted import wf as wf
from worker.core import spec
from worker.runtime import refusal

refusal.SPEC_READS = spec.SPEC_READS + 1  # type: ignore[attr-defined]
