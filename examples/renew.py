# examples/renew.py
from worker import FatalError, Workflows, sleep

wf = Workflows()


@wf.step
async def charge(customer: str, cents: int) -> str:
    if cents <= 0:
        raise FatalError(f"{cents} cents cannot be charged")
    return f"receipt-{customer}-{cents}"


@wf.step
def send_mail(customer: str, text: str) -> None:  # a plain def runs in a thread
    print(f"to {customer}: {text}")


@wf.workflow
async def renew(customer: str) -> str:
    await sleep("0.2s")  # or "30 days": a sleep is a row in Redis, not a process
    receipt = await charge(customer, 990)
    await send_mail(customer, f"thank you, {receipt}")
    return receipt
