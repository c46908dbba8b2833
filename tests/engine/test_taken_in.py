"""What a session takes from an answer."""

from __future__ import annotations

from tests.engine import app
from tests.engine.kit import Stage
from worker.runtime.knowledge import Knowledge
from world_redis.ids import new_mark
from world_redis.transition import Transition


async def test_an_answer_to_nothing_written_does_not_say_that_the_run_has_started(redis_url: str) -> None:
    async with Stage(redis_url, app.wf) as stage:
        process = stage.process()
        run_id = await stage.start(app.many, 1)
        known = Knowledge(run_id, process.host)
        learned = await known.learn_run(None)
        assert learned is not None
        known.build(*learned)
        asks = Transition(run_id, new_mark(), None, 0, seen=known.seen)
        reply = await process.host.log.append(asks, queue="default")
        assert reply.as_sent
        known.take_in(reply, asks)
        assert not known.started
        known.drop_body()
        await process.close()
