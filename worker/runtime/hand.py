"""The deliveries a session holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from world_redis.messages import DEADLINE, TIMER, Delivery, Held

from .host import Holdings


class Hand:
    """Held deliveries, oldest first. The oldest is the *carrier*: transitions are sent under it and numbered
    from 1, inline steps are stamped with it, and it is settled last."""

    def __init__(self, run_id: str, partition: int, holdings: Holdings) -> None:
        self._run_id = run_id
        self._partition = partition
        self._holdings = holdings
        self.carrier: Held | None = None
        self._numbers: dict[str, int] = {}
        self._seq = 0  # of the last transition under the carrier
        self.fired: set[str] = set()  # of TIMER and DEADLINE: taken, so that it is armed no longer

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def numbers(self) -> Mapping[str, int]:
        """Message id → delivery number."""
        return self._numbers

    @property
    def all(self) -> list[Held]:
        return [Held(id, number) for id, number in self._numbers.items()]

    def holds(self, held: Held) -> bool:
        return self._numbers.get(held.message_id) == held.number

    def take(self, delivery: Delivery) -> bool:
        """Hold a delivery; True when its message was held under an earlier number, which it replaces."""
        again = delivery.message_id in self._numbers
        self._numbers[delivery.message_id] = delivery.number
        if self.carrier is None or self.carrier.message_id == delivery.message_id:
            self._choose_carrier()
        if delivery.key in (TIMER, DEADLINE):
            self.fired.add(delivery.key)
        self._holdings.add(self._partition, delivery.held)
        return again

    def drop(self, items: Iterable[Held]) -> None:
        """Let go of what was settled, given back or lost."""
        for item in items:
            if self.holds(item):
                del self._numbers[item.message_id]
                if item == self.carrier:
                    self._choose_carrier()
            self._holdings.drop(self._partition, item)

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def about(self, **more: Any) -> dict[str, Any]:
        """Log fields that name the run and its carrier, when it has one still."""
        held = {} if self.carrier is None else self.carrier._asdict()
        return {"run_id": self._run_id} | held | more

    def _choose_carrier(self) -> None:
        self.carrier = next((Held(id, number) for id, number in self._numbers.items()), None)
        self._seq = 0
