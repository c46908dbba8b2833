"""Exceptions recorded in one process and raised in another."""

import asyncio
import builtins
import inspect
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.sdk import errors
from worker.sdk.errors import (
    FatalError,
    RemoteError,
    RetryableError,
    WorkflowError,
    WorkflowRunFailedError,
    error_text,
)
from worker.sdk.values import (
    TypeRegistry,
    decode_failure,
    describe,
    encode_failure,
    remote_traceback,
    serializable,
)
from worker.sdk.values.failures import TRACEBACK_BYTES


class CardDeclined(Exception):
    def __init__(self, code: str, *, card: str) -> None:
        super().__init__(f"declined: {code}")
        self.code = code
        self.card = card


class OutOfStock(FatalError):
    pass


def back(error: BaseException, types: TypeRegistry | None = None) -> Exception:
    types = types or TypeRegistry()
    return decode_failure(encode_failure(error, types), types)


def caught(raiser: Any) -> BaseException:
    try:
        raiser()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


# --- who comes back ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError("boom"),
        ValueError(),
        KeyError("missing"),
        ZeroDivisionError("division by zero"),
        RuntimeError("two", "arguments", 3),
        TimeoutError("too late"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
)
def test_a_builtin_comes_back_as_itself(error: Exception) -> None:
    read = back(error)

    assert type(read) is type(error)
    assert read.args == error.args
    assert str(read) == str(error)


def test_an_os_error_keeps_number_and_file_name() -> None:
    read = back(caught(Path("/no/such/file").read_bytes))

    assert isinstance(read, FileNotFoundError)
    assert (read.errno, read.filename) == (2, "/no/such/file")
    assert "/no/such/file" in str(read)


def test_every_error_of_this_package_comes_back_with_its_attributes() -> None:
    samples: list[Exception] = [
        FatalError("no"),
        RetryableError("later", retry_after="10s"),
        RetryableError("later", retry_after=datetime(2030, 1, 1, tzinfo=UTC)),
        RemoteError("Declined", "no funds", module="shop"),
        errors.RemoteFatalError("Declined", "no funds"),
        errors.SerializationError("too deep", path="f() result"),
        errors.TypeValidationError("not an int", path="f() argument 'n'"),
        errors.DurationError("'soon'"),
        errors.StepNotRegisteredError("charge"),
        errors.StepTimeoutError("charge", 30),
        errors.StepCrashedError("charge", 5),
        errors.RunNotFoundError("wrun_1"),
        errors.RunExistsError("order-7", "wrun_1", "renew"),
        errors.RunExpiredError("wrun_1", "completed"),
        errors.WorkflowRunFailedError("wrun_1", ValueError("boom"), error_code="BODY_STUCK"),
        errors.RunCancelledError("wrun_1", "customer left"),
        errors.RunTimeoutError("wrun_1", 30),
        errors.HookNotFoundError("token"),
        errors.HookConflictError("token", "wrun_2"),
        errors.HookDisposedError("token"),
        errors.ReplayDivergenceError("wrun_1", slot=3, recorded="step a", called="step b"),
        errors.InternalError("impossible row"),
        WorkflowError("base"),
    ]

    public = {c for c in vars(errors).values() if inspect.isclass(c) and issubclass(c, Exception)}
    assert public == {type(sample) for sample in samples}
    for sample in samples:
        read = back(sample)
        assert type(read) is type(sample)
        assert (str(read), read.args, vars(read)) == (str(sample), sample.args, vars(sample))


def test_an_unregistered_class_comes_back_as_remote_error() -> None:
    read = back(CardDeclined("05", card="visa"))

    assert type(read) is RemoteError
    assert (read.type_name, read.message) == ("CardDeclined", "declined: 05")
    assert str(read) == "CardDeclined: declined: 05"
    assert read.module == __name__


def test_an_unregistered_fatal_error_is_still_caught_as_fatal() -> None:
    read = back(OutOfStock("none left"))

    assert isinstance(read, FatalError)
    assert isinstance(read, RemoteError)
    assert read.type_name == "OutOfStock"


def test_a_registered_class_comes_back_with_arguments_and_attributes() -> None:
    types = TypeRegistry()
    serializable(types=types)(CardDeclined)

    read = back(CardDeclined("05", card="visa"), types)

    assert isinstance(read, CardDeclined)
    assert (str(read), read.code, read.card) == ("declined: 05", "05", "visa")


def test_a_registered_class_may_bring_its_own_form() -> None:
    types = TypeRegistry()
    types.register(
        CardDeclined,
        class_id="declined",
        serialize=lambda error: {"code": error.code, "card": error.card},
        deserialize=lambda data: CardDeclined(**data),
    )

    read = back(CardDeclined("05", card="visa"), types)

    assert isinstance(read, CardDeclined)
    assert read.card == "visa"


def test_a_class_the_reader_does_not_register_is_a_remote_error_there() -> None:
    types = TypeRegistry()
    types.register(CardDeclined)

    read = decode_failure(encode_failure(CardDeclined("05", card="visa"), types), TypeRegistry())

    assert type(read) is RemoteError
    assert read.type_name == "CardDeclined"


def test_a_users_class_named_like_a_builtin_or_ours_is_not_taken_for_it() -> None:
    for name in ("ValueError", "FatalError"):
        read = back(type(name, (Exception,), {})("mine"))
        assert type(read) is RemoteError
        assert read.type_name.endswith(name)


def test_a_remote_error_passed_on_keeps_the_first_name() -> None:
    read = back(back(CardDeclined("05", card="visa")))

    assert isinstance(read, RemoteError)
    assert (read.type_name, read.message) == ("CardDeclined", "declined: 05")


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError("stop"),
        errors.BodyDropped(),
        StopIteration(1),
        StopAsyncIteration(),
    ],
)
def test_control_flow_comes_back_as_an_ordinary_failure(error: BaseException) -> None:
    read = back(error)

    assert type(read) is RemoteError
    assert read.type_name == type(error).__qualname__


def test_no_name_in_a_record_is_imported_or_called() -> None:
    for name in ("SystemExit", "eval", "os.system", "object", "__import__"):
        for kind in ("builtin", "own", "registered", "unheard-of"):
            record = {"kind": kind, "type": name, "class": name, "message": "m", "args": ["1"]}
            read = decode_failure(json.dumps(record).encode(), TypeRegistry())
            assert type(read) is RemoteError


# --- what comes with it ------------------------------------------------------------------------


def test_cause_notes_and_traceback_text_survive() -> None:
    def fail() -> None:
        try:
            raise KeyError("order")
        except KeyError as error:
            outer = ValueError("bad order")
            outer.add_note("while reading the cart")
            raise outer from error

    read = back(caught(fail))

    assert isinstance(read.__cause__, KeyError)
    assert read.__suppress_context__
    assert read.__notes__ == ["while reading the cart"]
    assert "raise outer from error" in remote_traceback(read)


def test_context_survives_unless_suppressed() -> None:
    def fail(suppress: bool) -> None:
        try:
            raise KeyError("order")
        except KeyError:
            if suppress:
                raise ValueError("bad order") from None
            raise ValueError("bad order")  # noqa: B904 - the implicit context is the subject

    shown = back(caught(lambda: fail(False)))
    hidden = back(caught(lambda: fail(True)))

    assert isinstance(shown.__context__, KeyError)
    assert not shown.__suppress_context__
    assert hidden.__context__ is None
    assert hidden.__suppress_context__


def test_members_of_a_group_survive() -> None:
    group = ExceptionGroup(
        "unhandled errors in a TaskGroup",
        [ValueError("a"), ExceptionGroup("inner", [CardDeclined("05", card="visa")])],
    )

    read = back(group)

    assert isinstance(read, ExceptionGroup)
    assert read.message == "unhandled errors in a TaskGroup"
    values, rest = read.split(ValueError)
    assert values is not None and [str(e) for e in values.exceptions] == ["a"]
    assert rest is not None and rest.subgroup(RemoteError) is not None


def test_a_group_with_control_flow_in_it_comes_back_as_an_ordinary_group() -> None:
    read = back(BaseExceptionGroup("g", [asyncio.CancelledError(), ValueError("a")]))

    assert type(read) is ExceptionGroup
    assert [type(member) for member in read.exceptions] == [RemoteError, ValueError]


def test_a_very_wide_group_says_what_it_left_out() -> None:
    read = back(ExceptionGroup("g", [ValueError(str(i)) for i in range(250)]))

    assert isinstance(read, ExceptionGroup)
    assert len(read.exceptions) == 100
    assert read.__notes__ == ["150 more members were not recorded"]


def test_the_traceback_of_a_failure_passed_on_starts_where_it_began() -> None:
    def first() -> None:
        raise ValueError("boom")

    def second() -> None:
        raise back(caught(first))

    text = remote_traceback(back(caught(second)))

    assert text.index("in first") < text.index("in second")


def test_traceback_text_is_capped_and_keeps_its_end() -> None:
    # Two functions in turn, because repeated frames are printed once.
    def ping(n: int) -> float:
        return pong(n - 1)  # a remark that only makes every frame of the traceback a longer text

    def pong(n: int) -> float:
        return ping(n - 1) if n else 1 / 0

    text = remote_traceback(back(caught(lambda: ping(201))))

    assert TRACEBACK_BYTES - 10 <= len(text.encode()) <= TRACEBACK_BYTES
    assert text.startswith("  ...")
    assert "1 / 0" in text[-300:]


# --- recording never fails ---------------------------------------------------------------------


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_an_error_that_cannot_be_printed_is_recorded() -> None:
    read = back(Hostile(object()))

    assert isinstance(read, RemoteError)
    assert read.type_name == "Hostile"
    assert "could not be made" in read.message


def test_arguments_that_cannot_be_recorded_become_the_message() -> None:
    read = back(ValueError("boom", object()))

    assert type(read) is ValueError
    assert "boom" in str(read)


def test_attributes_that_cannot_be_recorded_are_left_out() -> None:
    error = ValueError("boom")
    error.connection = object()  # type: ignore[attr-defined]
    error.order = 7  # type: ignore[attr-defined]

    read = back(error)

    assert vars(read).items() >= {"order": 7}.items()
    assert not hasattr(read, "connection")


def test_a_registered_class_whose_form_fails_becomes_text() -> None:
    types = TypeRegistry()
    types.register(CardDeclined, serialize=lambda e: 1 / 0, deserialize=lambda d: d)

    read = back(CardDeclined("05", card="visa"), types)

    assert type(read) is RemoteError
    assert read.message == "declined: 05"


def test_a_registered_class_that_reads_back_as_control_flow_becomes_text() -> None:
    types = TypeRegistry()
    types.register(CardDeclined, serialize=str, deserialize=lambda d: SystemExit(d))  # type: ignore[arg-type,return-value]

    assert type(back(CardDeclined("05", card="visa"), types)) is RemoteError


def test_links_that_go_round_in_a_circle_are_cut() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__context__, two.__context__ = two, one

    read = back(one)

    assert isinstance(read.__context__, ValueError)
    assert read.__context__.__context__ is None


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_a_huge_failure_is_recorded_small(size: int) -> None:
    error = ValueError("x" * size, b"y" * size)
    error.add_note("\ud800" * size)

    data = encode_failure(error, TypeRegistry())

    assert len(data) < 300_000
    assert type(decode_failure(data, TypeRegistry())) is ValueError


def test_a_group_nested_beyond_the_stack_is_recorded_as_text() -> None:
    error: Exception = ValueError("core")
    for _ in range(sys.getrecursionlimit()):
        error = ExceptionGroup("shell", [error])

    read = back(error)

    assert isinstance(read, RemoteError)
    assert read.message == "shell"


@given(
    st.binary(max_size=50)
    | st.recursive(st.none() | st.text(max_size=5), st.lists).map(
        lambda tree: json.dumps({"kind": "builtin", "type": "ValueError", "args": tree}).encode()
    )
)
def test_any_bytes_are_read_as_some_exception(data: bytes) -> None:
    assert isinstance(decode_failure(data, TypeRegistry()), Exception)


@given(
    st.sampled_from([c for c in vars(builtins).values() if inspect.isclass(c) and issubclass(c, Exception)]),
    st.lists(st.text(max_size=5) | st.integers() | st.binary(max_size=5), max_size=3),
)
def test_any_builtin_with_any_arguments_survives(cls: type[Exception], args: list[Any]) -> None:
    try:
        error = cls(*args)
        text = str(error)
    except Exception:
        return
    read = back(error)
    if isinstance(error, (StopIteration, StopAsyncIteration)):
        assert type(read) is RemoteError
    else:
        assert type(read) is type(error)
        assert str(read) == text


def test_a_record_is_json_a_person_can_read() -> None:
    record = json.loads(encode_failure(ValueError("boom"), TypeRegistry()))

    assert record == {
        "kind": "builtin",
        "type": "ValueError",
        "module": "builtins",
        "message": "boom",
        "args": ["boom"],
    }


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("sku"), "KeyError: 'sku'"),
        (AssertionError(), "AssertionError"),
        (TimeoutError(""), "TimeoutError"),
        (RemoteError("shop.CardDeclined", "no money"), "shop.CardDeclined: no money"),
        (RemoteError("shop.CardDeclined", ""), "shop.CardDeclined"),
        (ExceptionGroup("two", [ValueError("a")]), "ExceptionGroup: two"),
        (Speechless(), "Speechless: <the text of this error could not be made>"),
    ],
    ids=repr,
)
def test_in_words_an_error_has_its_type_and_no_colon_without_a_text(error: Exception, text: str) -> None:
    assert error_text(error) == text
    assert describe(error) == text
    assert str(WorkflowRunFailedError("wrun_1", error)) == f"run 'wrun_1' failed: {text}"
