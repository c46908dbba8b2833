"""Arguments and results of a function, recorded by parameter name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from worker.sdk.errors import SerializationError, TypeValidationError
from worker.sdk.values import Codec, Signature, TypeRegistry, digest

if TYPE_CHECKING:
    from fractions import Fraction as OnlyForTypes


class Order(BaseModel):
    items: list[str]
    note: str = ""


@dataclasses.dataclass
class Receipt:
    id: str
    total: Decimal


async def charge(order: Order, amount: Decimal, *, currency: str = "EUR") -> Receipt:
    return Receipt("r1", amount)


def signature_of(fn: Callable[..., Any], **options: Any) -> Signature:
    return Signature(fn, codec=Codec(TypeRegistry(), **options))


def round_trip(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    signature = signature_of(fn)
    args, kwargs = signature.decode_arguments(signature.encode_arguments(args, kwargs))
    return fn(*args, **kwargs)


# --- arguments ---------------------------------------------------------------------------------


def test_arguments_are_recorded_by_parameter_name() -> None:
    data = signature_of(charge).encode_arguments((Order(items=["a"]),), {"amount": Decimal("9.90")})

    assert json.loads(data) == {
        "order": {"items": ["a"], "note": ""},
        "amount": {"$decimal": "9.90"},
    }


def test_arguments_come_back_by_position_and_keyword() -> None:
    signature = signature_of(charge)
    order = Order(items=["a"])

    data = signature.encode_arguments((order, Decimal(1)), {"currency": "USD"})

    assert signature.decode_arguments(data) == ((order, Decimal(1)), {"currency": "USD"})


def every_kind(a: int, /, b: int, c: int = 3, *rest: int, d: int, e: int = 5, **more: int) -> Any:
    return a, b, c, rest, d, e, more


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, 2), {"d": 4}),
        ((1,), {"b": 2, "d": 4}),
        ((1, 2, 30), {"d": 4, "e": 50}),
        ((1, 2, 3, 4, 5), {"d": 6, "x": 7, "rest_": 8}),
        ((1,), {"d": 4, "b": 2, "c": 9, "z": 1}),
    ],
)
def test_every_kind_of_parameter_is_called_as_before(args: Any, kwargs: Any) -> None:
    assert round_trip(every_kind, *args, **kwargs) == every_kind(*args, **kwargs)


@given(
    st.lists(st.integers(), min_size=2, max_size=5),
    st.integers(),
    st.dictionaries(st.sampled_from(["x", "y", "rest", "self"]), st.integers()),
)
def test_any_call_that_binds_is_called_as_before(args: list[int], d: int, more: dict[str, int]) -> None:
    assert round_trip(every_kind, *args, d=d, **more) == every_kind(*args, d=d, **more)


def no_annotations(a, b=None, *c, **d):  # type: ignore[no-untyped-def]
    return a, b, c, d


def test_a_function_without_annotations_takes_any_value() -> None:
    assert round_trip(no_annotations, (1,), {2}, b"x", k=1.5) == ((1,), {2}, (b"x",), {"k": 1.5})


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, r"charge\(\): missing a required.* argument: 'order'"),
        ((1, 2, 3), {}, r"charge\(\): too many positional arguments"),
        ((1, 2), {"colour": 1}, r"charge\(\): got an unexpected keyword argument 'colour'"),
        (("x", Decimal(1)), {}, r"charge\(\) argument 'order': .*\(got str\)"),
        ((Order(items=[]), "much"), {}, r"charge\(\) argument 'amount': .*decimal.*\(got str\)"),
        (({"items": ["a", 5]}, 1), {}, r"charge\(\) argument 'order'.items\[1\]: .*\(got int\)"),
    ],
)
def test_bad_arguments_fail_at_the_caller(args: Any, kwargs: Any, text: str) -> None:
    with pytest.raises(TypeValidationError, match=text) as caught:
        signature_of(charge).encode_arguments(args, kwargs)

    assert isinstance(caught.value, TypeError)


def test_an_argument_that_cannot_be_recorded_names_its_path() -> None:
    with pytest.raises(SerializationError, match=r"no_annotations\(\) argument 'a'\.x\[0\]: "):
        signature_of(no_annotations).encode_arguments(({"x": [object()]},), {})


def test_the_name_given_is_the_name_in_errors() -> None:
    with pytest.raises(TypeValidationError, match=r"^renew\(\): missing"):
        Signature(charge, name="renew").encode_arguments((), {})


def test_all_arguments_together_have_the_limit_of_a_value() -> None:
    with pytest.raises(SerializationError, match=r"no_annotations\(\) arguments: .*limit"):
        signature_of(no_annotations, max_bytes=100).encode_arguments(("x" * 60, "y" * 60), {})


# --- after a deploy ----------------------------------------------------------------------------


def test_a_parameter_added_with_a_default_reads_old_records() -> None:
    def before(a: int, c: int) -> None: ...
    def after(a: int, b: int = 7, c: int = 8, *, d: int = 9) -> Any:
        return a, b, c, d

    data = signature_of(before).encode_arguments((1, 2), {})
    args, kwargs = signature_of(after).decode_arguments(data)

    assert after(*args, **kwargs) == (1, 7, 2, 9)


def test_a_parameter_added_before_positional_ones_keeps_their_place() -> None:
    def before(a: int, /, *rest: int) -> None: ...
    def after(a: int, b: int = 7, /, *rest: int) -> Any:
        return a, b, rest

    data = signature_of(before).encode_arguments((1, 2, 3), {})
    args, kwargs = signature_of(after).decode_arguments(data)

    assert after(*args, **kwargs) == (1, 7, (2, 3))


def test_a_parameter_added_without_a_default_is_an_error_that_names_it() -> None:
    def after(a: int, b: int) -> None: ...

    with pytest.raises(TypeValidationError, match=r"argument 'b': no value .* no default"):
        signature_of(after).decode_arguments(b'{"a":1}')


def test_a_parameter_taken_away_is_an_error_that_names_it() -> None:
    def after(a: int) -> None: ...

    with pytest.raises(TypeValidationError, match="'b' is not a parameter; it takes a"):
        signature_of(after).decode_arguments(b'{"a":1,"b":2}')


def test_defaults_are_recorded_when_asked_for_and_only_where_they_can_be() -> None:
    marker = object()

    def body(a: int, grace: int = 3, missing: Any = marker, *rest: int, k: str = "x") -> None: ...

    signature = signature_of(body)

    assert json.loads(signature.encode_arguments((1,), {})) == {"a": 1}
    assert json.loads(signature.encode_arguments((1,), {}, with_defaults=True)) == {
        "a": 1,
        "grace": 3,
        "k": "x",
    }


@pytest.mark.parametrize("data", [b"[1]", b"5", b"{", b'{"a": {"$new": 1}}'])
def test_a_record_that_is_no_call_is_an_error(data: bytes) -> None:
    with pytest.raises(SerializationError):
        signature_of(no_annotations).decode_arguments(data)


def test_json_written_by_a_person_is_read_by_position_or_name() -> None:
    signature = signature_of(charge)
    expected = (Order(items=["a"]), Decimal("9.90"))

    assert signature.parse_arguments(b'[{"items": ["a"]}, "9.90"]') == (expected, {})
    assert signature.parse_arguments(b'{"order": {"items": ["a"]}, "amount": "9.90"}') == (
        expected,
        {},
    )
    assert signature_of(no_annotations).parse_arguments(b"[1, 2, 3, 4]") == ((1, 2, 3, 4), {})
    for bad in (b"5", b"[]", b'{"order": 1}'):
        with pytest.raises(TypeValidationError):
            signature.parse_arguments(bad)


# --- results -----------------------------------------------------------------------------------


def test_a_result_comes_back_by_its_annotation() -> None:
    signature = signature_of(charge)
    receipt = Receipt("r1", Decimal("9.90"))

    data = signature.encode_result(receipt)

    assert json.loads(data) == {"id": "r1", "total": {"$decimal": "9.90"}}
    assert signature.decode_result(data) == receipt


def test_a_bad_result_names_the_function() -> None:
    with pytest.raises(SerializationError, match=r"charge\(\) result\.total: "):
        signature_of(charge).encode_result(Receipt("r1", "much"))  # type: ignore[arg-type]


def test_strict_mode_covers_arguments_and_results() -> None:
    def plain(numbers: tuple[int, ...]) -> float: ...  # type: ignore[empty-body]

    signature = signature_of(plain, strict=True)
    with pytest.raises(SerializationError, match="argument 'numbers': a list would come back"):
        signature.encode_arguments(([1],), {})
    assert signature.decode_result(signature.encode_result(1)) == 1.0


# --- annotations -------------------------------------------------------------------------------


def test_classes_local_to_the_enclosing_function_are_found() -> None:
    @dataclasses.dataclass
    class Local:
        x: int

    def outer() -> Signature:
        async def step(value: list[Local], extra: Later) -> Local | None: ...

        return signature_of(step)

    signature = outer()
    data = signature.encode_arguments(([Local(1)], Later(x=2)), {})

    assert signature.decode_arguments(data) == (([Local(1)], Later(x=2)), {})
    assert signature.decode_result(signature.encode_result(Local(3))) == Local(3)


class Later(BaseModel):
    """Defined below the function that names it: found at start-up, not at decoration."""

    x: int


@pytest.mark.parametrize("part", ["argument 'ratio'", "result"])
def test_an_annotation_that_cannot_be_resolved_names_the_parameter_and_the_cure(part: str) -> None:
    async def ratio_in(amount: int, ratio: OnlyForTypes | None) -> None: ...
    async def ratio_out(amount: int) -> OnlyForTypes: ...  # type: ignore[empty-body]

    fn = ratio_out if part == "result" else ratio_in
    with pytest.raises(TypeValidationError) as caught:
        signature_of(fn).resolve()

    assert part in str(caught.value)
    assert "'OnlyForTypes' is not defined" in str(caught.value)
    assert "import it at run time" in str(caught.value)


def test_an_annotation_that_cannot_be_used_names_the_parameter() -> None:
    class Broken(BaseModel):
        other: Missing  # type: ignore[name-defined]  # noqa: F821

    async def step(value: Broken) -> None: ...

    with pytest.raises(TypeValidationError, match=r"argument 'value': .* cannot be used"):
        signature_of(step).resolve()


# --- digest ------------------------------------------------------------------------------------


def test_the_digest_tells_calls_apart_and_ignores_defaults_and_set_order() -> None:
    def before(tags: set[str]) -> None: ...
    def after(tags: set[str], note: str = "") -> None: ...

    one = digest(signature_of(before).encode_arguments(({"b", "a"},), {}))

    assert one == digest(signature_of(after).encode_arguments((), {"tags": {"a", "b"}}))
    assert one != digest(signature_of(before).encode_arguments(({"a"},), {}))
    assert len(one) == 16
