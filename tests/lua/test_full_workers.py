"""A worker without room keeps time for the fleet: what falls due becomes ready, whoever looks."""

from tests.lua.kit import LEASE, StoreKit


async def test_a_worker_without_room_makes_ready_what_is_due_and_tells_of_it(kit: StoreKit) -> None:
    run_id = await kit.start(due_in=5_000)
    assert await kit.waiting(run_id) == {"wake": "d"}
    await kit.clock.advance(5_000)
    taken = await kit.queue("full").take(0, ["default"], runs=0, steps=0, empty=False)
    assert taken.deliveries == []
    assert await kit.waiting(run_id) == {"wake": "r"}
    bell = kit.world.keys.bell(0, "default")
    assert await kit.world.command("LLEN", bell) == 1, "somebody with room is rung"
    assert [d.run_id for d in await kit.take("idle")] == [run_id]


async def test_a_worker_without_room_lets_the_rescue_look(kit: StoreKit) -> None:
    session = await kit.session()
    await session.inline("s1")
    await kit.queue().defer(0, [session.held], due_in=100 * LEASE)
    await kit.clock.advance(LEASE)
    await kit.queue("full").take(0, ["default"], runs=0, steps=0, empty=False)
    (wake,) = await kit.take("idle")
    assert (wake.run_id, wake.payload) == (session.run_id, b"rescue")
