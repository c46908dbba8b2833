"""Why this process cannot take a run on. Other builds may: the run is given back, and parks in the end."""

from __future__ import annotations

from dataclasses import dataclass

from world_redis.messages import RunContext, StepMessage

from ..core.calls import Divergence, Problem, Stuck, Undecodable
from ..core.spec import SPEC_READS
from .host import Host


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: str  # a word for counters and the park record
    detail: str  # a sentence for people
    at_once: bool = False  # park without giving others a try


def refusal_of_run(context: RunContext, host: Host) -> Refusal | None:
    """Before a body is built: is this run one this process can read and knows?"""
    return _unreadable(context) or _unknown(context, host)


def refusal_of_step(message: StepMessage, host: Host) -> Refusal | None:
    """Before a queued step is claimed: the same questions of it and of its run."""
    newer = _unreadable(message.context) if message.context is not None else None
    return newer or _unknown_step(message.name, host)


def _unknown_step(name: str, host: Host) -> Refusal | None:
    step = host.step(name)
    if step is not None and host.steps.can_run(step):
        return None
    what = "is not registered here" if step is None else f"needs the {step.executor} executor"
    return Refusal("unknown_step", f"step {name!r} {what}")


def _unknown(context: RunContext, host: Host) -> Refusal | None:
    if host.workflow(context.workflow, context.version) is not None:
        return None
    known = host.registry.workflows.get(context.workflow)
    versions = f"; versions here: {', '.join(map(str, sorted(known)))}" if known else ""
    text = f"workflow {context.workflow!r} version {context.version} is not registered{versions}"
    return Refusal("unknown_workflow", text)


def _unreadable(context: RunContext) -> Refusal | None:
    """A run written by a newer version is left for a newer worker."""
    if context.spec <= SPEC_READS:
        return None
    text = f"the run has spec {context.spec}, this worker reads up to {SPEC_READS}"
    return Refusal("newer_spec", text)


def refusal_of(problem: Problem) -> Refusal:
    match problem:
        case Divergence(slot, recorded, called, waiting_for):
            where = "; ".join(waiting_for) or "nothing"
            text = f"slot {slot} has {recorded}, the code asked for {called}; it waits for: {where}"
            return Refusal("divergence", text)
        case Undecodable(slot, value, error):
            return Refusal("undecodable", f"slot {slot}: {value}: {error}")
        case Stuck(frames):
            return Refusal("body_stuck", "; ".join(frames), at_once=True)
        case other:
            raise AssertionError(f"{other} is the run's end, not a refusal")
