"""Values to recorded bytes and back.

Recorded bytes are UTF-8 JSON; for a plain value simply its JSON. The store never looks inside.
"""

from __future__ import annotations

from typing import Any

import orjson
import pydantic
from pydantic_core import PydanticSerializationError

from ..errors import SerializationError, TypeValidationError
from .adapters import Shape, shape_of
from .faithful import check_same
from .registry import TypeRegistry, default_types
from .scalars import is_clean
from .tagging import Tagger, Unfit, untag

MAX_BYTES = 1 << 20
"""Default limit of one recorded value: 1 MiB."""

_ANY = shape_of(Any)
_TOO_DEEP = "nested too deeply for what is left of the stack"


class Codec:
    """Records values and reads them back, for one registry of classes.

    ``max_bytes`` limits one recorded value. ``strict`` reads every value back when it is recorded
    and compares it with the original: what replay would show otherwise is an error at once.
    """

    def __init__(
        self,
        types: TypeRegistry = default_types,
        *,
        max_bytes: int = MAX_BYTES,
        strict: bool = False,
    ) -> None:
        self.types = types
        self.max_bytes = max_bytes
        self.strict = strict

    def encode(self, value: Any, annotation: Any = Any, *, path: str = "value") -> bytes:
        """Return ``value`` as recorded bytes; ``path`` names it in errors.

        Raises:
            SerializationError: it cannot be recorded, would lose its class, or is too large.
            TypeValidationError: it does not fit ``annotation``.
        """
        return self.encode_shape(value, self.shape(annotation, path), path=path)

    def decode(self, data: bytes, annotation: Any = Any, *, path: str = "value") -> Any:
        """Return the value recorded as ``data``.

        Raises:
            SerializationError: the bytes are not a record, or name a class not registered here.
            TypeValidationError: the value does not fit ``annotation`` any more.
        """
        return self.decode_shape(data, self.shape(annotation, path), path=path)

    def parse(self, data: bytes, annotation: Any = Any, *, path: str = "value") -> Any:
        """Read JSON that a person or another system wrote: as `decode`, by alias or field name.

        Raises:
            SerializationError, TypeValidationError: as for `decode`.
        """
        tree = self.load(data, path)
        return self.from_tree(tree, self.shape(annotation, path), path=path, by_alias=True)

    # --- the same, for an annotation prepared once ------------------------------------------------

    def shape(self, annotation: Any, path: str) -> Shape:
        """Prepare an annotation.

        Raises:
            TypeValidationError: nothing can be recorded under it.
        """
        if annotation is Any:
            return _ANY
        try:
            return shape_of(annotation)
        except (pydantic.PydanticUserError, NameError) as error:
            reason = str(error).splitlines()[0]
            raise TypeValidationError(
                f"the annotation {annotation!r} cannot be used: {reason}", path=path
            ) from error

    def encode_shape(self, value: Any, shape: Shape, *, path: str) -> bytes:
        """`encode` for a prepared annotation."""
        return self.dump(self.to_tree(value, shape, path=path), path)

    def decode_shape(self, data: bytes, shape: Shape, *, path: str) -> Any:
        """`decode` for a prepared annotation."""
        return self.from_tree(self.load(data, path), shape, path=path)

    # --- the steps in between: value ↔ tree ↔ bytes -----------------------------------------------

    def to_tree(self, value: Any, shape: Shape, *, path: str) -> Any:
        """The recorded tree of ``value``, checked by reading it back where that can differ."""
        exact = shape.any or shape.plain is type(value)
        if exact and _is_tree(value):
            return value
        tagger = Tagger(self.types, typed=not shape.any)
        try:
            tree = tagger.tag(shape.dump(value))
        except Unfit as unfit:
            raise SerializationError(unfit.reason, path=path + unfit.trail) from unfit.__cause__
        except RecursionError:
            raise SerializationError(_TOO_DEEP, path=path) from None
        except PydanticSerializationError as error:
            # Raised for the user's own serializers.
            raise SerializationError(str(error), path=path) from error
        if self.strict or tagger.needs_check or not exact:
            self._check(value, tree, shape, path)
        return tree

    def from_tree(self, tree: Any, shape: Shape, *, path: str, by_alias: bool = False) -> Any:
        """The value of a recorded tree."""
        if shape.plain is type(tree):
            return tree
        try:
            value = untag(tree, self.types)
        except Unfit as unfit:
            raise SerializationError(unfit.reason, path=path + unfit.trail) from unfit.__cause__
        except RecursionError:
            raise SerializationError(_TOO_DEEP, path=path) from None
        if shape.any or shape.plain is type(value):
            return value
        try:
            return shape.validate(value, by_alias=by_alias)
        except pydantic.ValidationError as error:
            # Without a cause: pydantic's own text shows the values, which may be secrets.
            raise _does_not_fit(error, path) from None
        except Exception as error:
            # A validator or __post_init__ of the user's.
            raise TypeValidationError(f"reading it raised {error!r}", path=path) from error

    def dump(self, tree: Any, path: str) -> bytes:
        """The bytes of a tree, within the limit."""
        data = orjson.dumps(tree)
        if len(data) > self.max_bytes:
            raise SerializationError(
                f"{len(data):,} bytes are more than the limit of {self.max_bytes:,} "
                f"(WORKFLOW_MAX_PAYLOAD_BYTES); record a reference to the data instead",
                path=path,
            )
        return data

    def load(self, data: bytes, path: str) -> Any:
        """The tree of recorded bytes."""
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise SerializationError(f"the record is not JSON: {error}", path=path) from None

    def _check(self, value: Any, tree: Any, shape: Shape, path: str) -> None:
        read = self.from_tree(orjson.loads(orjson.dumps(tree)), shape, path=path)
        try:
            check_same(value, read, strict=self.strict)
        except Unfit as unfit:
            raise SerializationError(unfit.reason, path=path + unfit.trail) from None


def _is_tree(value: Any) -> bool:
    """Is it recorded as it is? True for what most steps take and return."""
    kind = type(value)
    if kind is int:
        return bool(-(2**63) <= value < 2**63)
    return value is None or kind is bool or (kind is str and is_clean(value))


def _does_not_fit(error: pydantic.ValidationError, path: str) -> TypeValidationError:
    found = error.errors(include_url=False, include_context=False, include_input=True)
    parts = []
    for item in found[:3]:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in item["loc"])
        # What is missing was found in its parent, whose class would only mislead.
        got = "" if item["type"] == "missing" else f" (got {type(item['input']).__name__})"
        parts.append((where, item["msg"] + got))
    (first, text), *rest = parts
    text += "".join(f"; {where.lstrip('.') or 'value'}: {more}" for where, more in rest)
    if len(found) > len(parts):
        text += f"; and {len(found) - len(parts)} more"
    return TypeValidationError(text, path=path + first)
