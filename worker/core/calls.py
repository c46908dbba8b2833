"""What a workflow body asks for, in the order it asks.

A call is issued when its code runs and is *fresh* until the log holds its create event. Ids are
counted per kind from 1 (``s`` steps and children, ``w`` waits, ``h`` hooks, ``a`` attributes,
``p`` patches), so every replay gives call number n the same id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from .records import StepCreated, pack


@dataclass(slots=True, eq=False)
class StepCall:
    """One step to run."""

    id: str
    name: str
    input: bytes  # encoded arguments
    queue: str  # "": the run's own queue
    options: Mapping[str, object]  # what with_options overrode: timeout, retry
    cancellable: bool
    packed: bytes = b""  # its record, from when it is to be written until the log has it

    @property
    def label(self) -> str:
        return f"step {self.name}"

    def record(self) -> bytes:
        """What `step_created` holds of it; packed once, though a refused transition is planned again."""
        if not self.packed:
            self.packed = pack(StepCreated(self.name, self.input, self.queue, dict(self.options)))
        return self.packed


@dataclass(slots=True, eq=False)
class ChildCall:
    """One child run to start. It counts as a step of kind child."""

    id: str
    name: str  # the child's workflow
    version: int
    run_id: str  # derived from the parent's id and `id`
    input: bytes
    queue: str  # "": the parent's own queue
    timeout: int  # ms, 0: none
    attributes: Mapping[str, str]
    detach: bool  # outlives its parent's cancel and end
    resolved: bool  # `start()`: the body went on at once; False: the body awaits the child's end

    @property
    def label(self) -> str:
        return f"child {self.name}"


@dataclass(slots=True, eq=False)
class WaitCall:
    """One timer. A relative one counts from the transition that records it."""

    id: str
    due_in: int  # ms
    due_at: int = 0  # absolute ms; wins over due_in when > 0

    @property
    def label(self) -> str:
        return "wait"


@dataclass(slots=True, eq=False)
class HookCall:
    """One hook to open."""

    id: str
    token: str
    chosen: bool  # the user chose the token, so it must be registered
    name: str  # of the payload class, shown to people
    metadata: bytes  # encoded

    @property
    def label(self) -> str:
        return "hook"


@dataclass(slots=True, eq=False)
class DisposeCall:
    """Close the hook `id`."""

    id: str

    @property
    def label(self) -> str:
        return "dispose"


@dataclass(slots=True, eq=False)
class AttributesCall:
    """Set (text) and remove (None) attributes of the run."""

    id: str
    changes: Mapping[str, str | None]

    @property
    def label(self) -> str:
        return "attributes"


@dataclass(slots=True, eq=False)
class PatchCall:
    """`patched(change_id)` answered true here for the first time.

    Its answer rests on the log having nothing after this point, so the transition that records it
    is fenced by position, and a refusal drops the body.
    """

    id: str
    change_id: str

    @property
    def label(self) -> str:
        return f"patch {self.change_id}"


Call: TypeAlias = StepCall | ChildCall | WaitCall | HookCall | DisposeCall | AttributesCall | PatchCall


# --- how a body ended ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Returned:
    data: bytes  # encoded result


@dataclass(frozen=True, slots=True)
class Raised:
    data: bytes  # encoded failure
    code: str  # such as USER_ERROR


@dataclass(frozen=True, slots=True)
class Cancelled:
    reason: str  # of the cancel request


@dataclass(frozen=True, slots=True)
class ContinuedAsNew:
    input: bytes  # encoded arguments of the run that takes over
    attributes: Mapping[str, str | None] = field(default_factory=dict)  # set (text) and removed (None) here


Outcome: TypeAlias = Returned | Raised | Cancelled | ContinuedAsNew


# --- why a body cannot go on --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Divergence:
    """The log holds an event this code does not ask for at that point."""

    slot: int
    recorded: str  # what the log has there: "step charge (s3)"
    called: str  # what the code asked for instead
    waiting_for: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A recorded value this code cannot read: an input or a result of an older shape."""

    slot: int  # 0: the run's input
    value: str  # which value
    error: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """The body did not come to rest in time and was interrupted."""

    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spinning:
    """The body took too many turns without a new call."""

    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deadlock:
    """The body is quiet and nothing is open that could wake it."""

    frames: tuple[str, ...]


Problem: TypeAlias = Divergence | Undecodable | Stuck | Spinning | Deadlock


@dataclass(frozen=True, slots=True)
class Drift:
    """A call whose arguments differ from the recorded ones; the recorded answer is used."""

    slot: int
    id: str
    name: str


class Payload(NamedTuple):
    """What a hook received."""

    slot: int
    data: bytes


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A hook payload that does not fit its class; the hook waits for the next one."""

    hook: str
    slot: int  # of the payload
    seen: int  # decisive events the body had seen when it met it: it may have been kept for a while
    reason: str


@dataclass(slots=True)
class CallIds:
    """Gives every call its id: numbers from 1, for each kind by itself."""

    numbers: dict[str, int] = field(default_factory=dict)  # kind (s w h a) → the last one given

    def next(self, kind: str) -> str:
        number = self.numbers.get(kind, 0) + 1
        self.numbers[kind] = number
        return f"{kind}{number}"
