"""Matching issued calls with recorded ones."""

from worker.core.calls import HookCall, PatchCall, StepCall, WaitCall
from worker.core.cursor import Cursor
from worker.core.records import HookCreated, PatchRecorded, StepCreated, pack
from world_redis.events import Event, EventType


def step(number: int, name: str = "work") -> StepCall:
    return StepCall(f"s{number}", name, b"{}", "", {}, False)


def event(slot: int, type: EventType, id: str, data: bytes = b"") -> Event:
    return Event(slot, type, id, 0, b"", data, "")


def created(slot: int, number: int, name: str = "work") -> Event:
    return event(slot, EventType.STEP_CREATED, f"s{number}", pack(StepCreated(name, b"{}")))


def test_calls_are_fresh_until_they_are_matched() -> None:
    cursor = Cursor()
    cursor.issue(step(1))
    cursor.issue(WaitCall("w1", 5))
    cursor.learn(created(1, 1))
    assert cursor.match(None) is None
    assert list(cursor.fresh) == ["w1"]


def test_a_record_that_was_planned_here_matches_and_is_kept_no_longer() -> None:
    cursor, call = Cursor(), step(1)
    cursor.issue(call)
    data = call.record()
    assert call.record() is data  # a refused transition is planned again
    cursor.learn(event(1, EventType.STEP_CREATED, "s1", data))
    assert cursor.match(None) is None
    assert (call.packed, cursor.drifts, list(cursor.fresh)) == (b"", [], [])


def test_what_another_writer_recorded_is_compared_though_it_was_planned_here_too() -> None:
    cursor, drifted, other = Cursor(), step(1), step(2)
    for call in (drifted, other):
        cursor.issue(call)
        call.record()
    cursor.learn(event(1, EventType.STEP_CREATED, "s1", pack(StepCreated("work", b"[1]"))))
    assert cursor.match(None) is None
    assert [(drift.id, drift.name) for drift in cursor.drifts] == [("s1", "work")]
    assert drifted.packed == b"", "the log has another one"
    cursor.learn(created(2, 2, "something_else"))
    mismatch = cursor.match(None)
    assert mismatch is not None
    assert (mismatch.recorded, mismatch.called) == ("step something_else (s2)", "step work (s2)")


def test_only_what_stands_before_the_next_decisive_event_is_matched() -> None:
    cursor = Cursor()
    cursor.learn(created(5, 1))
    assert cursor.match(4) is None
    mismatch = cursor.match(5)
    assert mismatch is not None
    assert (mismatch.slot, mismatch.recorded, mismatch.called) == (5, "step work (s1)", "nothing more")


def test_the_order_across_kinds_is_checked() -> None:
    cursor = Cursor()
    cursor.issue(WaitCall("w1", 5))
    cursor.issue(step(1))
    cursor.learn(created(1, 1))
    mismatch = cursor.match(None)
    assert mismatch is not None
    assert mismatch.called == "wait (w1)"


def test_a_call_dropped_before_it_was_recorded_may_be_missing() -> None:
    cursor = Cursor()
    cursor.issue(step(1))
    cursor.issue(step(2))
    cursor.void("s1")
    cursor.learn(created(1, 2))
    assert cursor.match(None) is None
    assert not cursor.fresh


def test_a_call_dropped_before_it_was_recorded_may_turn_up_late() -> None:
    cursor = Cursor()
    cursor.issue(step(1))
    cursor.issue(step(2))
    cursor.void("s1")
    cursor.learn(created(1, 2))
    cursor.learn(created(2, 1))
    assert cursor.match(None) is None
    assert [call.id for call in cursor.revived] == ["s1"]


def test_a_create_recorded_twice_counts_once() -> None:
    cursor = Cursor()
    cursor.issue(step(1))
    cursor.learn(created(1, 1))
    cursor.learn(created(2, 1))
    assert cursor.match(None) is None


def test_a_conflict_stands_in_the_place_of_the_hook() -> None:
    cursor = Cursor()
    cursor.issue(HookCall("h1", "taken", True, "Note", b""))
    cursor.learn(event(1, EventType.HOOK_CONFLICT, "h1", pack(HookCreated("taken"))))
    assert cursor.match(None) is None
    assert not cursor.fresh


def test_a_hook_already_closed_is_not_closed_again() -> None:
    cursor = Cursor()
    cursor.learn(event(1, EventType.HOOK_DISPOSED, "h1"))
    cursor.dispose("h1")
    cursor.dispose("h2")
    assert list(cursor.fresh) == ["-h2"]
    cursor.learn(event(2, EventType.HOOK_DISPOSED, "h2"))
    assert not cursor.fresh


def patch(slot: int, id: str, change: str) -> Event:
    return event(slot, EventType.PATCH_RECORDED, id, pack(PatchRecorded(change)))


def test_a_patch_is_new_when_the_log_ends_here() -> None:
    cursor = Cursor()
    cursor.issue(step(1))
    cursor.learn(created(1, 1))
    answer = cursor.patched("change")
    assert isinstance(answer, PatchCall)
    assert answer.id == "p1"
    assert list(cursor.fresh) == ["s1", "p1"]
    cursor.learn(patch(2, "p1", "change"))
    assert list(cursor.fresh) == ["s1"]
    assert cursor.patched("change") is True


def test_a_patch_is_false_when_the_log_went_on_without_it() -> None:
    cursor = Cursor()
    cursor.learn(created(1, 1))
    assert cursor.patched("change") is False


def test_a_patch_recorded_further_down_does_not_count_here() -> None:
    cursor = Cursor()
    cursor.learn(created(1, 1))
    cursor.learn(patch(2, "p1", "change"))
    assert cursor.patched("change") is False
    cursor.issue(step(1))
    assert cursor.patched("change") is True


def test_numbers_of_patches_are_not_given_twice() -> None:
    cursor = Cursor()
    cursor.learn(patch(1, "p1", "removed since"))
    answer = cursor.patched("change")
    assert isinstance(answer, PatchCall)
    assert answer.id == "p2"


def test_another_patch_under_the_same_number_contradicts() -> None:
    cursor = Cursor()
    cursor.patched("change")
    cursor.learn(patch(1, "p1", "of another build"))
    assert cursor.contradicted
