"""A wake tells the event that caused it, and a live body that stands right before it goes on at once.

Whatever else has happened by then, no event is lost, none is delivered twice, and nothing is written on what
is not in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from tests.engine import app
from tests.engine.kit import Cut, Process, Stage
from tests.engine.test_budget import run_to_rest
from worker.core.records import HookReceived, pack
from worker.runtime.host import Limits
from world_redis.events import EventType
from world_redis.messages import News
from world_redis.queue import Queue, Taken
from world_redis.scripts import ScriptCall


@dataclass
class Talk:
    """A run that waits for words, and the process in which it lives."""

    stage: Stage
    process: Process
    run_id: str
    said: list[str] = field(default_factory=list)

    @classmethod
    async def begin(cls, stage: Stage, *, words: int = 0, **how: Any) -> Talk:
        """`words`: of a run without the step that the others have between two."""
        process = stage.process(**how)
        run_id = await (stage.start(app.words, words) if words else stage.start(app.two_words))
        await run_to_rest(process)
        process.ports.calls.clear()
        return cls(stage, process, run_id)

    async def say(self, word: str) -> None:
        self.said.append(word)
        record = pack(HookReceived(orjson.dumps({"word": word}), word))
        assert await self.stage.resume(self.run_id, word, record)

    def at(self, script: str, *, answered: bool, say: str) -> None:
        """A word is said while the first call of `script` is on its way, there or back."""
        waiting = [say]

        async def on_call(call: ScriptCall, was_answered: bool) -> None:
            if call.script == script and was_answered == answered and waiting:
                await self.say(waiting.pop())

        self.process.ports.on_call = on_call

    async def ended(self) -> dict[str, int]:
        """How often each script was called, once all is over and as it must be."""
        await run_to_rest(self.process)
        snapshot = await self.stage.read(self.run_id)
        assert snapshot.status == "completed"
        assert [word for word in orjson.loads(snapshot.events[-1].data) if word != "a"] == self.said
        received = [event for event in snapshot.events if event.type is EventType.HOOK_RECEIVED]
        assert len(received) == len(self.said)
        assert await self.stage.breaches() == []
        calls = Counter(self.process.ports.calls)
        del calls["take"]
        return calls


async def test_both_words_cost_a_transition_each(stage: Stage) -> None:
    talk = await Talk.begin(stage)
    await talk.say("one")
    await run_to_rest(talk.process)
    await talk.say("two")
    assert await talk.ended() == {"append": 3}, "one goes on, the end of the step is told, two ends it"


async def test_a_word_before_the_take_of_anothers_wake_is_not_lost(stage: Stage) -> None:
    talk = await Talk.begin(stage)
    await talk.say("one")
    await talk.say("two")
    # The first is refused as stale, and tells of the second word: as many as without news.
    assert await talk.ended() == {"append": 3}


@pytest.mark.parametrize(("script", "answered"), [("take", True), ("append", False)])
async def test_a_word_before_what_follows_anothers_news_is_not_lost(
    stage: Stage, script: str, answered: bool
) -> None:
    """The body that has heard the first word goes on: it is not built anew."""
    talk = await Talk.begin(stage)
    talk.at(script, answered=answered, say="two")
    await talk.say("one")
    assert await talk.ended() == {"append": 3}


async def test_a_word_right_after_it_is_not_lost(stage: Stage) -> None:
    """The step of the first word runs; its end bets against the second one, and is read."""
    talk = await Talk.begin(stage)
    talk.at("append", answered=True, say="two")
    await talk.say("one")
    assert await talk.ended() == {"append": 3, "run_read": 1}


async def test_the_wake_of_a_taker_that_dies_comes_again_without_news(stage: Stage) -> None:
    talk = await Talk.begin(stage)
    await talk.say("one")
    doomed = stage.process(cut=Cut(1, answered=True))

    async def never() -> bool:
        return False

    await doomed.work(never)
    await talk.process.work(lambda: _heard(stage, talk.run_id))
    await talk.say("two")
    assert "run_read" not in await talk.ended()


async def _heard(stage: Stage, run_id: str) -> bool:
    return any(event.type is EventType.STEP_COMPLETED for event in await stage.events(run_id))


async def test_a_process_without_the_body_reads_the_log(stage: Stage) -> None:
    talk = await Talk.begin(stage)
    await talk.say("one")
    talk.process = stage.process()
    await run_to_rest(talk.process)
    await talk.say("two")
    assert (await talk.ended())["run_read"] == 1


async def test_without_live_runs_every_wake_reads_the_log(stage: Stage) -> None:
    talk = await Talk.begin(stage, limits=Limits(strict=True, live_runs=0))
    await talk.say("one")
    await run_to_rest(talk.process)
    await talk.say("two")
    assert (await talk.ended())["run_read"] == 2


class Misinformed(Queue):
    """Takes wakes from a server whose log was lost when another one took over."""

    def __init__(self, process: Process, lie: Callable[[News], News]) -> None:
        super().__init__(process.ports.call, process.name)
        self._lie = lie

    async def take(self, *args: object, **more: object) -> Taken:
        taken = await super().take(*args, **more)  # type: ignore[arg-type]
        told = [d._replace(news=self._lie(d.news)) if d.news else d for d in taken.deliveries]
        return taken._replace(deliveries=told)


def another(news: News) -> News:
    """In its place the log has another event."""
    lost = news.event._replace(mark=b"lost!!!!", data=pack(HookReceived(orjson.dumps({"word": "lost"}), "")))
    return News(lost, news.position._replace(mark=lost.mark))


def next_one(news: News) -> News:
    """The log ends before it."""
    lost = news.event._replace(slot=news.event.slot + 9, mark=b"lost!!!!")
    return News(
        lost, news.position._replace(decided=news.position.decided + 1, slot=lost.slot, mark=lost.mark)
    )


async def test_nothing_is_written_on_an_event_in_whose_place_the_log_has_another(stage: Stage) -> None:
    talk = await Talk.begin(stage)
    talk.process.host.queue = Misinformed(talk.process, another)
    await talk.say("one")
    await run_to_rest(talk.process)
    await talk.say("two")
    assert (await talk.ended())["run_read"] == 2, "each time its body is built anew"


async def test_nothing_is_written_on_an_event_that_the_log_does_not_reach(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Two words are learned from the log, the second one before its wake is taken."""
    talk = await Talk.begin(stage, words=3)
    talk.process.host.queue = Misinformed(talk.process, next_one)
    talk.at("settle", answered=False, say="two")
    await talk.say("one")
    await run_to_rest(talk.process)
    assert talk.process.ports.calls.count("run_read") == 1, "its body is built anew"
    await talk.say("three")
    await talk.ended()
    assert "session failed" not in caplog.messages
