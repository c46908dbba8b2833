"""The order that ``worker demo`` runs: parallel steps, a step whose worker is killed, a sleep, a person's
approval, a step that fails once. Copy it: it uses the public names alone."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from worker import BaseHook, Workflows, get_step_metadata, sleep

wf = Workflows()
log = logging.getLogger("demo")

CHARGE_SECONDS = 2.5  # long enough to be killed in the middle


@dataclass
class Approval(BaseHook):
    by: str


@wf.step
async def reserve(item: str) -> str:
    await asyncio.sleep(0.4)
    return f"{item} reserved"


@wf.step
async def charge_card(customer: str) -> str:
    # The same key in every attempt: a payment provider would book this charge once.
    key = get_step_metadata().idempotency_key
    log.info("charging %s (idempotency key ...%s)", customer, key[-4:])
    await asyncio.sleep(CHARGE_SECONDS)
    return f"{customer} charged"


@wf.step
async def print_label(order: str) -> str:
    if get_step_metadata().attempt == 1:
        raise ConnectionError("the printer is off")
    return f"label of {order}"


@wf.workflow
async def order(number: str, customer: str, items: list[str]) -> str:
    await asyncio.gather(*(reserve(item) for item in items))
    await charge_card(customer)
    await sleep("1s")
    async with Approval.wait() as hook:
        approval = await hook
    await print_label(number)
    return f"order {number} shipped, approved by {approval.by}"
