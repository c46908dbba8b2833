"""A body waits for payloads from outside."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import abc
import asyncio
import contextlib
import enum
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest
from pydantic_core import core_schema

from tests.core.player import Approval, Player, raised, returned
from worker.core.calls import (
    HookCall,
)
from worker.core.records import HookReceived, pack
from worker.sdk.errors import (
    HookConflictError,
    HookDisposedError,
    TypeValidationError,
)
from worker.sdk.hooks import BaseHook
from worker.sdk.registry import Workflows
from worker.sdk.values import Codec, TypeRegistry
from world_redis.events import EventType

pytestmark = pytest.mark.usefixtures("no_body_is_left")

T = TypeVar("T")


def test_a_hook_gives_its_payload() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> str:
        async with Approval.wait(token="order-1", metadata={"total": 3}) as hook:
            answer = await hook
            return f"{answer.yes} {answer.by} {hook.token}"

    player = Player(renew)
    (call,) = player.body.open.values()
    assert isinstance(call, HookCall)
    assert (call.token, call.chosen, call.metadata) == ("order-1", True, b'{"total":3}')
    player.receive("h1", Approval(True, "ann"))
    assert returned(player) == "True ann order-1"
    player.check_every_prefix()


def test_payloads_are_kept_until_they_are_asked_for() -> None:
    wf = Workflows()

    @wf.step
    async def prepare() -> None: ...

    @wf.workflow
    async def renew() -> list[str]:
        async with Approval.wait() as hook:
            await prepare()
            return [(await hook).by, (await hook).by, (await hook).by]

    player = Player(renew)
    player.receive("h1", Approval(True, "ann"))
    player.receive("h1", Approval(True, "bob"))
    player.complete("s1")
    player.receive("h1", Approval(True, "cy"))
    assert returned(player) == ["ann", "bob", "cy"]
    player.check_every_prefix()


def test_a_hook_is_iterated_until_it_is_disposed() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> list[str]:
        names = []
        hook = Approval.wait()
        async for answer in hook:
            names.append(answer.by)
            if not answer.yes:
                hook.dispose()
        hook.dispose()
        return names

    player = Player(renew)
    player.receive("h1", Approval(True, "ann"))
    player.receive("h1", Approval(False, "bob"))
    assert returned(player) == ["ann", "bob"]


def test_a_late_payload_is_skipped() -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> str:
        async with Approval.wait() as hook:
            await hook
        await charge()
        with contextlib.suppress(HookDisposedError):
            await hook
            return "a payload"
        return "disposed"

    player = Player(renew)
    player.receive("h1", Approval(True))
    assert [event.type for event in player.log][-2:] == [
        EventType.HOOK_DISPOSED,
        EventType.STEP_CREATED,
    ]
    player.receive("h1", Approval(False))
    assert player.open == ["step charge (s1)"]
    player.complete("s1")
    assert returned(player) == "disposed"
    player.check_every_prefix()


def test_a_payload_is_not_lost_with_a_cancelled_awaiter() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> str:
        hook = Approval.wait()
        try:
            async with asyncio.timeout(10):
                await hook
        except TimeoutError:
            return (await hook).by
        return "early"

    player = Player(renew)
    player.fire("w1")
    player.receive("h1", Approval(True, "ann"))
    assert returned(player) == "ann"
    player.check_every_prefix()


def test_get_conflict_answers_when_the_hook_is_recorded() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> list[Any]:
        free, taken = Approval.wait(), Approval.wait(token="taken")
        found = [await free.get_conflict(), await taken.get_conflict()]
        found.append(await free.get_conflict())
        try:
            await taken
        except HookConflictError as error:
            found.append(error.conflicting_run_id)
        return found

    player = Player(renew)
    assert returned(player) == [None, "wrun_other", None, "wrun_other"]
    player.check_every_prefix()


def test_a_conflict_reaches_whoever_waits_for_a_payload() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> None:
        await Approval.wait(token="taken")

    assert isinstance(raised(Player(renew)), HookConflictError)


@pytest.mark.parametrize("wrong", [b'{"yes":"perhaps"}', b"{}", b"7", b"no JSON"])
@pytest.mark.parametrize("live", [True, False])
def test_a_payload_that_does_not_fit_is_passed_over_and_the_hook_waits_on(wrong: bytes, live: bool) -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.workflow
    async def renew() -> str:
        async with Approval.wait() as hook:
            answer = await hook
            await charge()
            return f"{answer.by} {(await hook).by}"

    player = Player(renew, live=live)
    player.move(EventType.HOOK_RECEIVED, "h1", pack(HookReceived(wrong)))
    (first,) = player.body.passed_over
    assert (first.hook, "payload of hook Approval" in first.reason) == ("h1", True)
    assert (first.slot, first.seen) == (len(player.log), player.body.position.decided)
    player.receive("h1", Approval(True, "ann"))
    assert player.open == ["hook (h1)", "step charge (s1)"]
    player.move(EventType.HOOK_RECEIVED, "h1", pack(HookReceived(wrong)))
    player.receive("h1", Approval(True, "bob"))
    player.complete("s1")
    assert returned(player) == "ann bob"
    again, second = player.body.passed_over
    assert again == first, "the same in every replay"
    assert second.seen == player.body.position.decided, "it was kept until the step had ended"
    assert second.slot < len(player.log) - 1
    assert player.body.take_passed_over() == [first, second]
    assert player.body.passed_over == []
    player.check_every_prefix()


def test_an_iterated_hook_goes_on_after_a_payload_that_does_not_fit() -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> str:
        async for answer in Approval.wait():
            return answer.by
        return "none"

    player = Player(renew)
    player.move(EventType.HOOK_RECEIVED, "h1", pack(HookReceived(b"{}")))
    player.receive("h1", Approval(True, "ann"))
    assert returned(player) == "ann"
    player.check_every_prefix()


class Verdict(BaseHook, enum.Enum):
    YES = "yes"
    NO = "no"


class Grams(BaseHook):
    """Says itself how it is read and written."""

    def __init__(self, number: int) -> None:
        self.number = number

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> core_schema.CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(lambda grams: grams.number)
        return core_schema.no_info_after_validator_function(
            cls, core_schema.int_schema(), serialization=written
        )


def test_a_class_without_fields_is_a_payload_if_it_can_be_read() -> None:
    wf = Workflows()

    @wf.workflow
    async def weigh() -> str:
        verdict, grams = await Verdict.wait(), await Grams.wait()
        return f"{verdict.name} {grams.number}"

    player = Player(weigh)
    player.receive("h1", Verdict.NO)
    player.receive("h2", Grams(13))
    assert returned(player) == "NO 13"
    player.check_every_prefix()


class Plain(BaseHook):
    """Pydantic knows nothing of it."""


class Between(Plain):
    """Nor of this one."""


class Abstract(BaseHook, abc.ABC):
    @abc.abstractmethod
    def total(self) -> int: ...


class Parcel(BaseHook, Generic[T]):
    content: T


def registry(types: TypeRegistry) -> Workflows:
    wf = Workflows()
    wf.codec = Codec(types)
    return wf


def paid(base: type[Any], types: TypeRegistry) -> Any:
    """A payload of a registered class below `base`."""

    @dataclass
    class Paid(base):
        amount: int

        def total(self) -> int:
            return self.amount

    types.register(Paid)
    return Paid(13)


@pytest.mark.parametrize("base", [Plain, Between, Abstract, Parcel])
@pytest.mark.parametrize("late", [False, True])
def test_a_plain_class_is_a_payload_if_a_class_below_it_is_registered(base: type[Any], late: bool) -> None:
    types = TypeRegistry()
    wf = registry(types)
    early = None if late else paid(base, types)

    @wf.workflow
    async def collect() -> str:
        answer: Any = await base.wait()
        return f"{type(answer).__name__} {answer.total()}"

    payload = early or paid(base, types)
    player = Player(collect)
    player.receive("h1", payload)
    assert returned(player) == "Paid 13"
    player.check_every_prefix()


def test_the_registered_class_may_be_far_below_or_only_counted_in() -> None:
    types = TypeRegistry()
    wf = registry(types)

    class Role(BaseHook, abc.ABC):
        """Others may be counted in; an instance check knows of them."""

    @Role.register
    @dataclass
    class Guest:
        yes: bool

    types.register(Guest)

    @wf.workflow
    async def collect() -> str:
        return f"{type(await Plain.wait()).__name__} {type(await Role.wait()).__name__}"

    far = paid(Between, types)
    player = Player(collect)
    player.receive("h1", far)
    player.receive("h2", Guest(True))
    assert returned(player) == "Paid Guest"
    player.check_every_prefix()


def test_a_class_may_be_registered_while_a_hook_is_opened() -> None:
    """A step in a thread may import one."""
    types = TypeRegistry()
    wf = registry(types)

    class Role(BaseHook, abc.ABC):
        @classmethod
        def __subclasshook__(cls, other: type[Any]) -> bool:
            """Asked of a class that is registered: now another one is, too."""
            types.register(dataclass(type(f"Late{len(types._by_class)}", (), {})))
            return False

    paid(Between, types)

    @wf.workflow
    async def collect() -> str:
        return str(Role.wait())

    assert isinstance(raised(Player(collect)), TypeValidationError)


def test_a_registered_class_beside_a_plain_one_or_above_it_does_not_count() -> None:
    types = TypeRegistry()
    wf = registry(types)
    paid(Plain, types)

    @dataclass
    class Above(BaseHook):
        yes: bool

    types.register(Above)

    class Below(Above):
        """It has the fields of its base, so it can be read by itself."""

    @wf.workflow
    async def collect(fields: bool) -> None:
        await (Below if fields else Between).wait()

    assert Player(collect, True).open == ["hook (h1)"]
    assert isinstance(raised(Player(collect, False)), TypeValidationError)


def test_a_class_that_no_payload_can_fit_is_an_error_at_once() -> None:
    wf = Workflows()

    class Bare(BaseHook):
        """Neither a dataclass nor a model."""

        yes: bool

    @dataclass
    class Unknown(BaseHook):
        yes: "Nobody"  # type: ignore[name-defined]  # noqa: F821

    @wf.workflow
    async def renew(bare: bool) -> None:
        await (Bare if bare else Unknown).wait()

    for bare in (True, False):
        assert isinstance(raised(Player(renew, bare)), TypeValidationError), bare
