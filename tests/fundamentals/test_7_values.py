"""What crosses a step's border is recorded, and comes back as its annotations say."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import pytest
from pydantic import BaseModel

from tests.fundamentals.conftest import Running
from worker import RemoteError, SerializationError, WorkflowRunFailedError, Workflows


@dataclass
class Item:
    name: str
    price: Decimal


class Order(BaseModel):
    day: date
    items: list[Item]


async def test_dataclasses_models_and_ordinary_values_come_back_as_they_are(running: Running) -> None:
    """Annotate, and use what you like; nothing is pickled."""
    wf = Workflows()

    @wf.step
    async def total(order: Order) -> Decimal:
        return sum((item.price for item in order.items), Decimal())

    @wf.workflow
    async def bill(order: Order) -> tuple[date, Decimal]:
        return order.day, await total(order)

    async with running(wf) as client:
        order = Order(day=date(2024, 5, 1), items=[Item("tea", Decimal("2.50")), Item("cake", Decimal("3"))])
        run = await client.start(bill, order)
        assert await run.return_value(timeout=10) == (date(2024, 5, 1), Decimal("5.50"))


async def test_a_value_that_cannot_be_recorded_is_an_error_that_names_its_place(running: Running) -> None:
    """A socket cannot travel; the error says where it was found."""
    wf = Workflows()

    @wf.step
    async def connect() -> object:
        return {"connections": [object()]}

    @wf.workflow
    async def use() -> str:
        try:
            await connect()
        except SerializationError as error:
            return error.path
        return "recorded"

    async with running(wf) as client:
        assert "connections" in await (await client.start(use)).return_value(timeout=10)


async def test_errors_travel_as_type_and_text(running: Running) -> None:
    """Built-in classes come back as themselves, others as `RemoteError` with their name."""
    wf = Workflows()

    class Unknown(Exception):
        pass

    @wf.workflow
    async def strange() -> None:
        raise Unknown("who am I")

    async with running(wf) as client:
        with pytest.raises(WorkflowRunFailedError) as failure:
            await (await client.start(strange)).return_value(timeout=10)
    cause = failure.value.__cause__
    assert isinstance(cause, RemoteError)
    assert cause.type_name.endswith("Unknown") and cause.message == "who am I"
