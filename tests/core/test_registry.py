"""Names, options and refusals of the registry."""

# The steps of these workflows are never executed, so they have no code.
# mypy: disable-error-code="empty-body"

import asyncio
import inspect
from datetime import datetime
from typing import Any, assert_type

import pytest

from worker.core.retry import RetryPolicy
from worker.sdk.context import current_step
from worker.sdk.definitions import Step
from worker.sdk.errors import DurationError
from worker.sdk.registry import Workflows


def test_a_name_is_the_qualified_name_or_the_given_one() -> None:
    wf = Workflows()

    @wf.step
    async def charge() -> None: ...

    @wf.step(name="pay")
    def other() -> None: ...

    assert charge.name.endswith("<locals>.charge")
    assert set(wf.steps) == {charge.name, "pay"}
    assert __name__ not in charge.name


def test_a_name_defined_twice_is_an_error_that_names_both_places() -> None:
    wf = Workflows()

    @wf.step(name="charge")
    async def one() -> None: ...

    with pytest.raises(ValueError, match=r"one .*test_registry\.py.*two .*test_registry\.py"):

        @wf.step(name="charge")
        async def two() -> None: ...

    @wf.workflow(name="renew")
    async def first() -> None: ...

    with pytest.raises(ValueError, match="version 1 is defined twice"):

        @wf.workflow(name="renew")
        async def second() -> None: ...


def test_versions_live_side_by_side_and_new_runs_take_the_highest() -> None:
    wf = Workflows()

    @wf.workflow(name="renew", version=2)
    async def new() -> None: ...

    @wf.workflow(name="renew")
    async def old() -> None: ...

    assert wf.latest("renew") is new
    assert wf.find_workflow("renew", 1) is old
    assert wf.find_workflow("renew", 3) is None
    assert old.for_new_runs() is new
    assert new.with_options(version=1).for_new_runs() is old
    with pytest.raises(LookupError):
        new.with_options(version=9).for_new_runs()
    with pytest.raises(LookupError):
        wf.latest("unknown")


def test_methods_are_refused_and_static_functions_are_not() -> None:
    wf = Workflows()
    with pytest.raises(TypeError, match="is a method"):

        class Shop:
            @wf.step
            async def charge(self) -> None: ...

    with pytest.raises(TypeError, match="is a method"):

        class Other:
            @wf.workflow
            async def renew(self) -> None: ...

    class Fine:
        @staticmethod
        @wf.step
        async def charge(amount: int) -> None: ...

        @wf.step
        @staticmethod
        async def refund(amount: int) -> None: ...

    assert len(wf.steps) == 2


@pytest.mark.parametrize("value", [print, Workflows, 3, Workflows().workflow])
def test_only_plain_functions_are_steps(value: Any) -> None:
    with pytest.raises(TypeError, match="plain function"):
        Workflows().step(value)


def test_generators_and_sync_workflows_are_refused() -> None:
    wf = Workflows()
    with pytest.raises(TypeError, match="generator"):

        @wf.step
        async def numbers() -> Any:
            yield 1

    with pytest.raises(TypeError, match="async function"):

        @wf.workflow  # type: ignore[arg-type]
        def renew() -> None: ...


def test_options_of_a_step() -> None:
    wf = Workflows()

    @wf.step(max_retries=5, timeout="30s", executor="thread", queue="slow", cancellable=True)
    async def charge() -> None: ...

    @wf.step
    def plain() -> None: ...

    assert charge.retry.max_attempts == 6
    assert (charge.timeout, charge.executor, charge.queue) == (30, "thread", "slow")
    assert charge.cancellable
    assert (plain.executor, plain.retry.max_attempts, plain.timeout) == ("thread", 4, None)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"executor": "async"}, ValueError),
        ({"executor": "moon"}, ValueError),
        ({"max_retries": -1}, ValueError),
        ({"max_retries": 1, "retry": RetryPolicy()}, ValueError),
        ({"timeout": "soon"}, DurationError),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    def charge() -> None: ...

    with pytest.raises(error):
        Workflows().step(**options)(charge)


def test_with_options_leaves_the_step_as_it_is() -> None:
    wf = Workflows()

    @wf.step
    async def charge(amount: int) -> int: ...

    policy = RetryPolicy(max_attempts=2, retry_on=[ValueError])
    quick = charge.with_options(timeout=0.5, retry=policy).with_options(queue="gpu")
    assert (charge.timeout, charge.queue, charge.overrides) == (None, "", {})
    assert (quick.name, quick.fn, quick.queue) == (charge.name, charge.fn, "gpu")
    assert quick.overrides["timeout"] == 500
    assert RetryPolicy.from_record(quick.overrides["retry"]).max_attempts == 2  # type: ignore[arg-type]


def test_a_step_outside_a_workflow_names_the_plain_function() -> None:
    wf = Workflows()

    @wf.step(name="charge")
    async def charge(amount: int) -> int:
        return amount + 1

    @wf.step(name="double")
    def double(amount: int) -> int:
        return amount * 2

    @wf.workflow(name="renew")
    async def renew() -> None: ...

    with pytest.raises(RuntimeError, match=r"charge\.fn\("):
        asyncio.run(charge(1))
    with pytest.raises(RuntimeError, match=r"start\("):
        asyncio.run(renew())
    assert asyncio.run(charge.fn(1)) == 2
    assert double.fn(4) == 8


def test_a_step_inside_a_step_is_a_clear_error() -> None:
    wf = Workflows()

    @wf.step(name="charge")
    async def charge() -> None: ...

    token = current_step.set(object())
    try:
        with pytest.raises(RuntimeError, match="inside a step"):
            asyncio.run(charge())
    finally:
        current_step.reset(token)


def test_include_offers_another_registry_too() -> None:
    one, two = Workflows(), Workflows()

    @two.step(name="charge")
    async def charge() -> None: ...

    @two.workflow(name="renew")
    async def renew() -> None: ...

    one.include(two)
    one.include(two)
    assert one.steps["charge"] is charge
    assert one.latest("renew") is renew

    @one.step(name="other")
    async def other() -> None: ...

    three = Workflows()

    @three.step(name="other")
    async def another() -> None: ...

    with pytest.raises(ValueError, match="defined twice"):
        one.include(three)


def test_calls_are_typed_as_coroutines_of_async_and_sync_steps() -> None:
    wf = Workflows()

    @wf.step
    async def charge(amount: int) -> str:
        return str(amount)

    @wf.step(max_retries=1)
    def count(text: str) -> int:
        return len(text)

    @wf.workflow
    async def renew(amount: int) -> int:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(charge(amount))
        text = assert_type(await task, str)
        return assert_type(await count(text), int)

    assert isinstance(charge, Step)
    coroutine = charge(1)
    assert inspect.iscoroutine(coroutine)
    coroutine.close()
    assert charge.__doc__ is None
    assert repr(renew).endswith("renew' version 1>")


def test_annotations_are_resolved_at_start_up() -> None:
    wf = Workflows()

    @wf.step
    async def charge(order: "Unknown") -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(Exception, match="order"):
        wf.resolve()


def test_a_forgotten_await_names_the_step_or_the_workflow() -> None:
    wf = Workflows()

    @wf.step(name="takes_int")
    async def step(number: int) -> int: ...

    @wf.workflow(name="buy")
    async def workflow() -> None: ...

    with pytest.warns(RuntimeWarning, match="coroutine 'step takes_int' was never awaited"):
        step(1)  # type: ignore[unused-coroutine]
    with pytest.warns(RuntimeWarning, match="coroutine 'workflow buy' was never awaited"):
        workflow()  # type: ignore[unused-coroutine]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"on_duplicate": "Raise"}, ValueError, "on_duplicate is 'Raise'; it is 'return' or 'raise'"),
        ({"start_at": datetime(2030, 1, 1)}, DurationError, "2030-01-01T00:00:00 has no time zone"),
        ({"start_at": "2030-01-01"}, TypeError, "start_at is '2030-01-01'; it is a datetime"),
        ({"delay": "soon"}, DurationError, "'soon' is not a duration"),
        ({"timeout": "1 month"}, DurationError, "'month' has no fixed length"),
        ({"queue": ""}, ValueError, "queue ''"),
        ({"attributes": {"a": 1}}, ValueError, "attribute 'a': value 1"),
    ],
    ids=str,
)
def test_an_option_of_a_start_is_checked_where_it_is_given(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    wf = Workflows()

    @wf.workflow
    async def renew() -> None: ...

    with pytest.raises(error, match=said):
        renew.with_options(**options)
