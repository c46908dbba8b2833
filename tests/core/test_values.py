"""What may be recorded, how it looks, and that it comes back as itself."""

import collections
import contextlib
import dataclasses
import enum
import ipaddress
import json
import math
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from worker.sdk.errors import FatalError, SerializationError, TypeValidationError
from worker.sdk.values import (
    Codec,
    TypeRegistry,
    default_types,
    register_serializable,
    serializable,
)

codec = Codec(TypeRegistry())
strict = Codec(TypeRegistry(), strict=True)
BERLIN = ZoneInfo("Europe/Berlin")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Line:
    ends: tuple[Point, Point]
    label: str | None = None


class Pair(NamedTuple):
    left: int
    right: Point


class Animal(BaseModel):
    name: str


class Dog(Animal):
    tricks: list[str] = []


class Puppy(Dog):
    pass


class Kennel(BaseModel):
    animals: list[Animal]


class Item(BaseModel):
    sku: str
    note: str = ""


class Order(BaseModel):
    items: list[Item]
    total: Decimal
    placed: datetime | None = None


def back(value: Any, annotation: Any = Any, using: Codec = strict) -> Any:
    return using.decode(using.encode(value, annotation), annotation)


def same(value: Any, annotation: Any = Any) -> None:
    """The value comes back equal and of the same class, with and without strict mode."""
    for using in (codec, strict):
        read = back(value, annotation, using)
        assert type(read) is type(value)
        assert read == value


# --- without an annotation ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -(2**63),
        2**63 - 1,
        2**63,
        2**64,
        -(2**64),
        1.5,
        1e300,
        5e-324,
        "",
        "grüße 🎉",
        "\x00\x7f",
        b"",
        b"\xff\x00",
        [],
        [1, [2, [3]]],
        (),
        (1, (2,)),
        {},
        {"a": 1, "b": {"c": []}},
        {1: "a", "1": "b"},
        {None: 1, True: 2, 2.5: 3, b"x": 4, (1, 2): 5},
        {date(2024, 1, 1): 1, Decimal("1"): 2, uuid.UUID(int=5): 3},
        set(),
        {1, "a", None, (1,)},
        frozenset({1, frozenset({2})}),
        datetime(2024, 2, 29, 12, 30, 1, 5),
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        datetime(2024, 7, 1, 9, tzinfo=BERLIN),
        datetime.max,
        date(1, 1, 1),
        time(23, 59, 59, 999999),
        time(1, tzinfo=UTC),
        timedelta(days=-1, seconds=3, microseconds=7),
        timedelta.max,
        Decimal("9.90"),
        Decimal("-0"),
        Decimal("1E+1000"),
        Decimal("Infinity"),
        uuid.UUID(int=2**127),
        Path("/a/b.txt"),
        Path("relative"),
    ],
)
def test_a_value_survives_without_annotation(value: Any) -> None:
    same(value)
    same([value, {"nested": (value,)}])


@pytest.mark.parametrize("sign", [1, -1])
def test_an_int_of_any_size_survives(sign: int) -> None:
    same(sign * 10**5000)
    same({sign * 10**5000: [sign * 10**5000]})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -0.0])
def test_odd_floats_survive(value: float) -> None:
    read = back(value)

    assert repr(read) == repr(value)
    assert math.copysign(1, read) == math.copysign(1, value)
    assert repr(back([value], list[float])) == repr([value])


@pytest.mark.parametrize("value", ["\ud800", "a\udcffé\\n", "\ud800\udc00"])
def test_text_with_lone_surrogates_survives(value: str) -> None:
    same(value)
    same({value: value})
    same(Path(value))
    same([value], list[str])
    json.loads(codec.encode(value).decode("utf-8"))


@pytest.mark.parametrize(
    "value",
    [{"$tuple": [1]}, {"$": 1}, {"$dict": [[1, 2]]}, {"$object": ["Color", "red"]}, {"$x": {}}],
)
def test_a_dictionary_that_looks_like_a_tag_survives(value: Any) -> None:
    same(value)
    same({"a": value, "$b": value})
    same(value, dict[str, Any])


def test_zone_and_fold_of_a_moment_survive() -> None:
    late = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)
    naive = datetime(2024, 10, 27, 2, 30, fold=1)

    assert back(late).tzinfo is BERLIN
    assert back(late).fold == 1
    assert back(late).utcoffset() == timedelta(hours=1)
    assert back(naive).fold == 1
    assert back(time(2, 30, tzinfo=BERLIN)).tzinfo is BERLIN


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()), max_size=8)
    | st.binary(max_size=8)
    | st.datetimes(timezones=st.none() | st.just(UTC) | st.just(BERLIN))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)
hashables = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(hashables, inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$tuple", "$dict", "a"]), inner, max_size=2)
        | st.sets(hashables, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(values)
def test_any_value_survives_with_its_classes(value: Any) -> None:
    data = strict.encode(value)

    data.decode("utf-8")
    assert strict.decode(data) == value
    assert strict.encode(strict.decode(data)) == data


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("abc", max_size=3), inner),
        max_leaves=12,
    )
)
def test_a_plain_value_is_recorded_as_its_json(value: Any) -> None:
    assert json.loads(codec.encode(value)) == value


def test_the_recorded_form_can_be_read_by_a_person() -> None:
    value = {"id": "cus_1", "amount": Decimal("9.90"), "at": datetime(2024, 1, 1, tzinfo=UTC)}

    assert json.loads(codec.encode(value)) == {
        "id": "cus_1",
        "amount": {"$decimal": "9.90"},
        "at": {"$datetime": "2024-01-01T00:00:00+00:00"},
    }


def test_a_set_is_recorded_in_the_same_order_everywhere() -> None:
    assert codec.encode({"us", "eu", "ap"}) == b'{"$set":["ap","eu","us"]}'
    assert codec.encode(frozenset({3, "b", None})) == codec.encode(frozenset({None, "b", 3}))


def test_what_is_read_shares_nothing_with_what_was_given() -> None:
    given_value = [{"a": [1]}]
    read = back(given_value)
    given_value[0]["a"].append(2)

    assert read == [{"a": [1]}]


# --- what cannot be recorded -------------------------------------------------------------------


class MyDict(dict[str, int]):
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (object(), "a object cannot be recorded"),
        (Color.RED, "a Color cannot be recorded"),
        (Point(1), "a Point cannot be recorded"),
        (Dog(name="Rex"), "a Dog cannot be recorded"),
        (bytearray(b"x"), "pass bytes(value)"),
        (MyDict(a=1), "convert it with dict(value)"),
        (collections.OrderedDict(a=1), "convert it with dict(value)"),
        (ValueError("x"), "a ValueError cannot be recorded"),
        (len, "cannot be recorded"),
        (1j, "cannot be recorded"),
    ],
)
def test_what_has_no_class_to_come_back_to_is_an_error_that_names_the_path(value: Any, text: str) -> None:
    with pytest.raises(SerializationError) as caught:
        codec.encode({"a": [0, {"b c": (value,)}]}, path="charge() argument 'order'")

    assert caught.value.path == "charge() argument 'order'.a[1]['b c'][0]"
    assert str(caught.value).startswith(caught.value.path + ": ")
    assert text in str(caught.value)


def test_a_value_that_contains_itself_is_an_error() -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(SerializationError, match="does it contain itself"):
        codec.encode(loop)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"k": v}, lambda v: (v,)])
def test_a_value_may_be_nested_deeply_but_not_without_end(wrap: Any) -> None:
    value: Any = 1
    for _ in range(95):
        value = wrap(value)
    same(value)

    for _ in range(200):
        value = wrap(value)
    with pytest.raises(SerializationError, match="deeper than 200"):
        codec.encode(value)


def test_two_hundred_lists_fit_and_one_more_does_not() -> None:
    value: Any = 1
    for _ in range(200):
        value = [value]
    same(value)

    with pytest.raises(SerializationError, match="deeper than 200"):
        codec.encode([value])


@pytest.mark.parametrize("value", ["x" * 101, ["x" * 101], b"x" * 100])
def test_a_value_larger_than_the_limit_is_an_error_that_names_the_setting(value: Any) -> None:
    small = Codec(TypeRegistry(), max_bytes=100)

    assert small.decode(small.encode("x" * 98)) == "x" * 98
    with pytest.raises(SerializationError, match=r"f\(\) result: .*100 .*MAX_PAYLOAD_BYTES"):
        small.encode(value, path="f() result")


def test_the_limit_is_one_mebibyte_unless_set() -> None:
    assert len(codec.encode("x" * (2**20 - 2))) == 2**20
    with pytest.raises(SerializationError):
        codec.encode("x" * (2**20 - 1))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b'{"$new": 1}',
        b'{"$uuid": "x"}',
        b'{"$uuid": 5}',
        b'{"$bytes": "~"}',
        b'{"$dict": [1]}',
        b'{"$dict": [[[], 1]]}',
        b'{"$datetime": ["2024-01-01", "../../etc/passwd", 0]}',
        b'{"$object": "Color"}',
        b'{"$object": ["os.system", "ls"]}',
        b"[" * 1020 + b"]" * 1020,
    ],
)
def test_a_record_that_cannot_be_read_is_an_error_that_names_the_path(data: bytes) -> None:
    with pytest.raises(SerializationError) as caught:
        codec.decode(data, path="f() result")

    assert caught.value.path == "f() result"


@given(st.binary(max_size=30))
def test_any_bytes_are_a_value_or_an_error_of_ours(data: bytes) -> None:
    with contextlib.suppress(SerializationError):
        codec.decode(data)


def test_a_value_error_is_never_worth_a_retry() -> None:
    assert issubclass(SerializationError, FatalError)
    assert issubclass(TypeValidationError, TypeError)


# --- with an annotation ------------------------------------------------------------------------

T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    content: T


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid")
    total: int = Field(validation_alias="in", serialization_alias="out")

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.total


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    color: Color
    point: Point
    pair: Pair
    at: datetime
    raw: bytes
    numbers: set[int]


class Names(pydantic.RootModel[list[str]]):
    pass


class Address(TypedDict):
    street: str
    number: int


class Handle:
    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.number == self.number

    def __hash__(self) -> int:
        return self.number


HandleField = Annotated[
    Handle,
    pydantic.PlainValidator(lambda data: data if isinstance(data, Handle) else Handle(data)),
    pydantic.PlainSerializer(lambda handle: handle.number),
]


class WithHandle(BaseModel):
    handle: HandleField


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class Fish(BaseModel):
    kind: Literal["fish"] = "fish"
    name: str


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Order(items=[Item(sku="a")], total=Decimal("9.90")), Order),
        ([Order(items=[], total=Decimal(1), placed=datetime(2024, 1, 1))], list[Order]),
        (Line((Point(1), Point(2, 3)), "l"), Line),
        ({"a": Point(1)}, dict[str, Point]),
        ({Point(1), Point(2)}, set[Point]),
        (frozenset({Point(1)}), frozenset[Point]),
        (Pair(1, Point(2)), Pair),
        (Color.RED, Color),
        ({Color.RED: 1}, dict[Color, int]),
        (Level.LOW, Level),
        (None, Order | None),
        (Decimal("1"), Decimal | str),
        ("1", Decimal | str),
        (True, bool | int),
        (1, bool | int),
        ("2024-01-01", str | date),
        (date(2024, 1, 1), str | date),
        (b"\xff", bytes),
        (float("inf"), float),
        (2**80, int),
        ({"$x": 1}, dict[str, int]),
        ({1: (2.5, "x")}, dict[int, tuple[float, str]]),
        ((1, 2, 3), tuple[int, ...]),
        ([1, (2,)], Sequence[Any]),
        ({"number": 1, "street": "s"}, Address),
        (Box[int](content=1), Box[int]),
        (Box[Point](content=Point(1)), Box[Point]),
        (Names(["a"]), Names),
        (Aliased.model_validate({"in": 3}), Aliased),
        (
            Strict(
                color=Color.RED,
                point=Point(1),
                pair=Pair(1, Point(1)),
                at=datetime(2024, 1, 1),
                raw=b"\xff",
                numbers={1, 2},
            ),
            Strict,
        ),
        (WithHandle(handle=Handle(7)), WithHandle),
        ([Handle(7)], list[HandleField]),
        (Fish(name="nemo"), Annotated[Cat | Fish, Field(discriminator="kind")]),
        (Dog(name="Rex", tricks=["sit"]), Dog),
        (ipaddress.ip_address("10.0.0.1"), ipaddress.IPv4Address),
        (pydantic.HttpUrl("http://example.org/"), pydantic.HttpUrl),
        (PurePosixPath("/a"), PurePosixPath),
        (collections.deque([1]), collections.deque[int]),
        (collections.OrderedDict(a=1), collections.OrderedDict[str, int]),
        ("red", Literal["red", "blue"]),
        ([1, "a", None], list[Any]),
        (5, object),
    ],
)
def test_a_value_survives_by_its_annotation(value: Any, annotation: Any) -> None:
    same(value, annotation)


def test_a_union_order_written_later_is_not_taken_from_an_earlier_one() -> None:
    assert type(back("1", str | int)) is str
    assert type(back("1", int | str)) is str


def test_models_are_recorded_by_field_name_without_computed_fields() -> None:
    assert codec.encode(Aliased.model_validate({"in": 3}), Aliased) == b'{"total":3}'


def test_data_from_outside_may_use_aliases_or_field_names() -> None:
    assert codec.parse(b'{"in": 3}', Aliased).total == 3
    assert codec.parse(b'{"total": 3}', Aliased).total == 3
    with pytest.raises(TypeValidationError):
        codec.decode(b'{"in": 3}', Aliased)


def test_a_field_added_with_a_default_reads_old_records() -> None:
    assert codec.decode(b'{"sku":"a"}', Item) == Item(sku="a")
    assert codec.decode(b'{"x":1}', Point) == Point(1, 0)
    assert codec.decode(b'{"left":1,"right":{"x":1}}', Pair) == Pair(1, Point(1))


def test_an_excluded_field_is_not_recorded() -> None:
    class Secretive(BaseModel):
        name: str
        password: str = Field(default="", exclude=True)

    data = codec.encode(Secretive(name="a", password="hunter2"), Secretive)

    assert data == b'{"name":"a"}'


@pytest.mark.parametrize(
    ("value", "annotation", "path"),
    [
        (Dog(name="Rex"), Animal, ""),
        (Puppy(name="Rex"), Dog, ""),
        ([Animal(name="A"), Dog(name="Rex")], list[Animal], "[1]"),
        (Kennel(animals=[Dog(name="Rex")]), Kennel, ".animals[0]"),
        ({"a": {"b": Dog(name="Rex")}}, dict[str, dict[str, Animal]], ".a.b"),
        (True, int, ""),
        (Level.LOW, int, ""),
        (datetime(2024, 1, 1), date, ""),
        ([datetime(2024, 1, 1)], list[date], "[0]"),
        (collections.defaultdict(int, a=1), dict[str, int], ""),
        (Box[int](content=1), Box, ""),
    ],
)
def test_a_class_narrower_than_its_annotation_is_an_error_not_a_cut(
    value: Any, annotation: Any, path: str
) -> None:
    with pytest.raises(SerializationError, match="would be cut to") as caught:
        codec.encode(value, annotation, path="f() result")

    assert caught.value.path == "f() result" + path


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ({"a": Point(1)}, dict[str, Any]),
        ([Color.RED], list[Any]),
        (Item(sku="a"), dict[str, str]),
        ({"a": Item(sku="a")}, dict[str, object]),
    ],
)
def test_a_class_the_annotation_does_not_name_is_an_error_not_a_dictionary(
    value: Any, annotation: Any
) -> None:
    with pytest.raises(SerializationError, match="the annotation must name its class"):
        codec.encode(value, annotation)


def test_a_union_that_brings_back_another_class_is_an_error() -> None:
    class Left(BaseModel):
        x: int

    class Right(BaseModel):
        x: int

    with pytest.raises(SerializationError, match=r"Right would come back as .*Left"):
        codec.encode(Right(x=1), Left | Right)


def test_a_secret_is_refused_and_not_shown() -> None:
    with pytest.raises(SerializationError) as caught:
        codec.encode(pydantic.SecretStr("hunter2"), pydantic.SecretStr)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "annotation", "text"),
    [
        ("abc", int, "value: Input should be a valid integer, .* \\(got str\\)"),
        ({"items": [{"sku": 5}], "total": "1"}, Order, "value.items\\[0\\].sku: .*string"),
        ({"items": []}, Order, "value.total: Field required$"),
        (5, None, "should be None"),
        (Point("a"), Point, "value.x: "),  # type: ignore[arg-type]
        (-1, Annotated[int, Field(gt=0)], "greater than 0"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_when_it_is_recorded(
    value: Any, annotation: Any, text: str
) -> None:
    with pytest.raises(TypeValidationError, match=text):
        codec.encode(value, annotation)


def test_a_value_that_does_not_fit_is_not_shown() -> None:
    with pytest.raises(TypeValidationError) as caught:
        codec.decode(b'{"sku": 5, "note": ["hunter2"]}', Item)

    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_conversions_an_annotation_asks_for_are_made() -> None:
    assert back(1, float, codec) == 1.0
    assert type(back(1, float)) is float
    assert back([1, 2], tuple[int, ...], codec) == (1, 2)
    assert back("2024-01-01", date, codec) == date(2024, 1, 1)
    assert back({"sku": "a"}, Item, codec) == Item(sku="a")


def test_an_error_of_the_users_own_reader_is_an_error_that_names_the_path() -> None:
    @dataclasses.dataclass
    class Fussy:
        x: int

        def __post_init__(self) -> None:
            if self.x < 0:
                raise KeyError("negative")

    with pytest.raises(TypeValidationError, match=r"f\(\) result: reading it raised KeyError"):
        codec.decode(b'{"x":-1}', Fussy, path="f() result")


def test_a_key_no_declared_field_takes_is_an_error() -> None:
    with pytest.raises(SerializationError, match="keys would be lost"):
        codec.encode({"street": "s", "number": 1, "zip": "x"}, Address)


def test_serializers_of_the_user_do_not_hide_a_narrower_class() -> None:
    class Journey(BaseModel):
        animals: list[Animal]
        started: datetime

        @pydantic.field_serializer("started")
        def _as_text(self, started: datetime) -> str:
            return started.isoformat()

    fine = Journey(animals=[Animal(name="A")], started=datetime(2024, 1, 1))
    same(fine, Journey)
    fine.animals[0] = Dog(name="Rex")
    with pytest.raises(SerializationError, match=r"animals\[0\]: a Dog would be cut to Animal"):
        codec.encode(fine, Journey)


def test_a_dataclass_cannot_be_a_key() -> None:
    with pytest.raises(SerializationError, match="cannot be a dictionary key"):
        codec.encode({Point(1): 1}, dict[Point, int])


def test_an_annotation_nothing_can_be_recorded_under_is_an_error() -> None:
    class Broken(BaseModel):
        other: "Missing"  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeValidationError, match="cannot be used"):
        codec.encode(1, Broken)


# --- registered classes ------------------------------------------------------------------------


class Money:
    def __init__(self, cents: int, currency: str) -> None:
        self.cents = cents
        self.currency = currency

    def _workflow_serialize(self) -> tuple[int, str]:
        return self.cents, self.currency

    @classmethod
    def _workflow_deserialize(cls, data: tuple[int, str]) -> "Money":
        return cls(*data)


class Declined(Exception):
    pass


def registered(*classes: type[Any], strict: bool = True) -> Codec:
    types = TypeRegistry()
    for cls in classes:
        types.register(cls)
    return Codec(types, strict=strict)


@pytest.mark.parametrize(
    "value",
    [Color.RED, Level.LOW, Point(1, 2), Pair(1, Point(2)), Item(sku="a"), Dog(name="R")],
)
@pytest.mark.parametrize("annotation", [Any, list[Any], dict[str, Any], list[object]])
def test_a_registered_class_survives_without_annotation(value: Any, annotation: Any) -> None:
    using = registered(Color, Level, Point, Pair, Item, Dog)
    holder = {"k": value} if annotation == dict[str, Any] else [value]
    read = back(holder, annotation, using)

    assert read == holder
    assert type(read["k"] if isinstance(read, dict) else read[0]) is type(value)


def test_a_registered_class_survives_under_its_own_annotation() -> None:
    using = registered(Item, Point, Money)

    assert back(Item(sku="a"), Item, using) == Item(sku="a")
    assert back([Point(1)], list[Point], using) == [Point(1)]
    assert back(Money(5, "EUR"), Money, using).cents == 5
    assert back(None, Money | None, using) is None


def test_a_registered_class_writes_and_reads_with_its_own_methods() -> None:
    using = registered(Money)

    assert using.encode(Money(5, "EUR")) == b'{"$object":["Money",{"$tuple":[5,"EUR"]}]}'
    assert back(Money(5, "EUR"), Any, using).currency == "EUR"


def test_a_registered_class_may_be_a_key_and_a_member() -> None:
    using = registered(Color, Point)

    assert back({Color.RED: 1}, Any, using) == {Color.RED: 1}
    assert back({Point(1), Point(2)}, Any, using) == {Point(1), Point(2)}


def test_a_registered_exception_survives_as_a_value() -> None:
    read = back([Declined("05", 7)], Any, registered(Declined))

    assert type(read[0]) is Declined
    assert read[0].args == ("05", 7)


def test_a_subclass_of_a_registered_class_is_not_cut_to_it() -> None:
    with pytest.raises(SerializationError, match="a Puppy cannot be recorded"):
        registered(Dog).encode(Puppy(name="R"))


def test_a_narrower_field_of_a_registered_class_is_an_error() -> None:
    with pytest.raises(SerializationError, match="would be cut to Animal"):
        registered(Kennel, strict=False).encode(Kennel(animals=[Dog(name="R")]))


def test_a_class_the_reader_does_not_register_is_an_error_with_the_cure() -> None:
    data = registered(Color).encode([Color.RED])

    with pytest.raises(SerializationError, match=r"value\[0\]: class 'Color' .*@serializable"):
        codec.decode(data)


def test_a_failing_serializer_or_reader_is_an_error_that_names_the_class() -> None:
    types = TypeRegistry()
    types.register(Money, class_id="m", serialize=lambda m: 1 / 0, deserialize=lambda d: 1 / 0)  # type: ignore[arg-type,return-value]
    using = Codec(types)

    with pytest.raises(SerializationError, match="m could not be written: ZeroDiv") as written:
        using.encode([Money(1, "EUR")])
    with pytest.raises(SerializationError, match="m could not be read: ZeroDivision") as read:
        using.decode(b'[{"$object":["m",1]}]')

    assert isinstance(written.value.__cause__, ZeroDivisionError)
    assert isinstance(read.value.__cause__, ZeroDivisionError)


def test_an_id_belongs_to_one_class() -> None:
    types = TypeRegistry()
    types.register(Color)
    types.register(Color)
    with pytest.raises(TypeError, match=r"belongs to .*Color"):
        types.register(Level, class_id="Color")


def test_a_class_that_cannot_be_written_or_read_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="_workflow_serialize"):
        TypeRegistry().register(Handle)
    with pytest.raises(TypeError, match="deserialize= is missing"):
        TypeRegistry().register(Handle, serialize=lambda handle: handle.number)


def test_the_decorator_registers_where_it_is_told() -> None:
    types = TypeRegistry()

    @serializable(class_id="tier", types=types)
    class Tier(enum.Enum):
        PRO = "pro"

    @serializable
    class DefaultTier(enum.Enum):
        PRO = "pro"

    assert Codec(types).encode(Tier.PRO) == b'{"$object":["tier","pro"]}'
    assert default_types.of_class(DefaultTier) is not None
    assert back(DefaultTier.PRO, Any, Codec()) is DefaultTier.PRO
    register_serializable(Handle, types=types, serialize=hash, deserialize=Handle)
    assert back(Handle(3), Any, Codec(types)) == Handle(3)


# --- strict mode -------------------------------------------------------------------------------


def test_strict_mode_refuses_what_replay_would_not_show() -> None:
    class Hidden(BaseModel):
        name: str
        password: str = Field(default="", exclude=True)
        _cache: int = pydantic.PrivateAttr(default=0)

    private = Hidden(name="a")
    private._cache = 5
    for value, where in (
        ([Hidden(name="a", password="x")], r"\[0\]\.password"),
        ([private], r"\[0\]\._cache"),
    ):
        assert back(value, list[Hidden], codec)[0].name == "a"
        with pytest.raises(SerializationError, match=rf"f\(\) result{where}: "):
            strict.encode(value, list[Hidden], path="f() result")


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ([1, 2], tuple[int, ...]),
        ({"sku": "a"}, Item),
        ("5", int),
        (" a ", Annotated[str, pydantic.StringConstraints(strip_whitespace=True)]),
    ],
)
def test_strict_mode_refuses_conversions(value: Any, annotation: Any) -> None:
    back(value, annotation, codec)
    with pytest.raises(SerializationError, match="come"):
        strict.encode(value, annotation)


def test_strict_mode_refuses_a_registered_class_that_forgets() -> None:
    types = TypeRegistry()
    types.register(Handle, serialize=lambda handle: None, deserialize=lambda data: Handle(0))

    Codec(types).encode([Handle(7)])
    with pytest.raises(SerializationError, match=r"value\[0\]: a Handle comes back with another"):
        Codec(types, strict=True).encode([Handle(7)])
