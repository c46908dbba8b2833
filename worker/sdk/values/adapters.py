"""What an annotation does to a value: pydantic, in Python mode, by field name.

JSON mode is not used: it loses bytes, NaN, unions of text and numbers, and fields with an alias.
Field names are the recorded names, so an alias may change between two deploys.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from types import NoneType
from typing import Any, Never, NoReturn

import pydantic
from pydantic import ConfigDict, PydanticUserError, TypeAdapter

from .scalars import TEXT_SCALARS

_ARBITRARY = ConfigDict(arbitrary_types_allowed=True)
_PLAIN = frozenset({bool, int, float, str, NoneType, *TEXT_SCALARS})


class Shape:
    """One annotation, ready to check values.

    Attributes:
        annotation: as resolved.
        any: it promises nothing, so a value is recorded with tags alone.
        plain: the annotated class, if its exact instances need no check; else None.
        opaque: pydantic knows nothing of the class, so only its instances fit, and nothing that is read.
    """

    __slots__ = ("any", "plain", "opaque", "_adapter", "_custom", "annotation")

    def __init__(self, annotation: Any) -> None:
        self.annotation = NoneType if annotation is None else annotation
        self.any = annotation in (Any, object, NoReturn, Never)
        plain = isinstance(self.annotation, type) and self.annotation in _PLAIN
        self.plain = self.annotation if plain else None
        self._adapter: TypeAdapter[Any] = _build(Any if self.any else self.annotation)
        self.opaque = self._adapter.core_schema["type"] == "is-instance"
        self._custom = _has_custom_serializer(self._adapter.core_schema)

    def dump(self, value: Any) -> Any:
        """``value`` as the annotation's own serializers write it; unchanged if it has none."""
        if not self._custom:
            return value
        return self._adapter.dump_python(value, round_trip=True, by_alias=False, warnings=False)

    def validate(self, value: Any, *, by_alias: bool = False) -> Any:
        """``value`` as the annotation reads it; ``by_alias`` also for data from outside.

        Raises:
            pydantic.ValidationError: it does not fit.
        """
        # Models that are strict would refuse the dictionaries their nested classes are kept as.
        return self._adapter.validate_python(value, strict=False, by_alias=by_alias, by_name=True)


def _build(annotation: Any) -> TypeAdapter[Any]:
    try:
        # Registered classes are unknown to pydantic; for those an instance check is enough.
        adapter = TypeAdapter(annotation, config=_ARBITRARY)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        adapter = TypeAdapter(annotation)
    if not adapter.pydantic_complete:
        adapter.rebuild(raise_errors=True)
    return adapter


def _has_custom_serializer(schema: Any) -> bool:
    """Whether a serializer of the user's, or ``Json``, changes the value before it is recorded."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if node.get("type") == "json" or _runs_in_python_mode(node.get("serialization")):
                return True
            stack.extend(item for item in node.values() if isinstance(item, (dict, list, tuple)))
        elif isinstance(node, (list, tuple)):
            stack.extend(node)
    return False


def _runs_in_python_mode(serialization: Any) -> bool:
    return (
        isinstance(serialization, dict)
        and serialization.get("type") in ("function-plain", "function-wrap")
        and not str(serialization.get("when_used", "always")).startswith("json")
    )


# --- fields of one instance ---------------------------------------------------------------------


def field_values(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, pydantic model or NamedTuple that are recorded, by name."""
    if isinstance(value, pydantic.BaseModel):
        fields = type(value).model_fields
        # model_construct() may have left fields out.
        kept = {
            name: value.__dict__[name]
            for name, field in fields.items()
            if not field.exclude and name in value.__dict__
        }
        return kept | (value.__pydantic_extra__ or {})
    if dataclasses.is_dataclass(value):
        return {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
            if field.init and hasattr(value, field.name)
        }
    return dict(zip(value._fields, value, strict=True))


def validate_fields(cls: type[Any], fields: Any) -> Any:
    """Inverse of `field_values`, through the annotations of ``cls``."""
    return shape_of(cls).validate(fields)


@lru_cache(maxsize=1024)
def _cached(annotation: Any) -> Shape:
    return Shape(annotation)


def shape_of(annotation: Any) -> Shape:
    """The `Shape` of an annotation; built once where the annotation can be remembered.

    Raises:
        pydantic.PydanticUserError: pydantic can make nothing of it.
    """
    try:
        return _cached(annotation)
    except TypeError:
        # Annotated[...] with metadata that has no hash.
        return Shape(annotation)
