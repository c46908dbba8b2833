"""Payloads of log events."""

from typing import Any, NamedTuple

import pytest

from worker.core.records import (
    AttributesSet,
    CancelRequested,
    Failed,
    HookConflict,
    HookCreated,
    HookReceived,
    PatchRecorded,
    StepCreated,
    StepRetrying,
    pack,
    unpack,
)

RECORDS = [
    StepCreated("charge", b'{"n":1}', "gpu", {"timeout": 500}),
    StepCreated("part", b"{}", child_run_id="wrun_1", version=2),
    StepRetrying(b"{}", 1000, True),
    Failed("FATAL", b"{}"),
    CancelRequested("why"),
    HookCreated("token", b"1", "Note"),
    HookConflict("token", "wrun_1"),
    HookReceived(b"{}", "r1"),
    AttributesSet({"a": "b", "c": None}),
    PatchRecorded("change"),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was(record: tuple[Any, ...]) -> None:
    assert unpack(type(record), pack(record)) == record


def test_a_trivial_step_takes_little_room() -> None:
    assert len(pack(StepCreated("charge", b"{}"))) < 20


@pytest.mark.parametrize("data", [b"", b"{}", b"\xc1", b"\x93\x01"])
def test_anything_else_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a StepCreated record"):
        unpack(StepCreated, data)


class Newer(NamedTuple):
    change_id: str
    reason: str = "none"


def test_a_field_added_later_is_no_break() -> None:
    assert unpack(Newer, pack(PatchRecorded("change"))) == Newer("change")
    assert unpack(PatchRecorded, pack(Newer("change", "why"))) == PatchRecorded("change")
