"""Arguments and results of one function, recorded by parameter name."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
import typing
from collections.abc import Callable
from functools import cached_property
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple

from ..errors import SerializationError, TypeValidationError
from .adapters import Shape
from .codec import Codec

_LOCALS = ".<locals>."
_NAME = re.compile(r"[A-Za-z_]\w*")
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_GATHERING: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


class _Parameter(NamedTuple):
    """One parameter, looked at once for all calls."""

    name: str
    path: str  # its name in errors
    shape: Shape
    by_position: bool
    gathers: str  # "*" or "**": it takes all that is left over; "" for one value
    needed: bool
    default: Any


class _Resolved(NamedTuple):
    """What the annotations of a function say."""

    parameters: dict[str, _Parameter]
    result: Shape
    signature: inspect.Signature
    positional: tuple[str, ...]  # what a call without names fills, in this order
    at_least: int  # how many values such a call has; more than there are, if one can only be named


class Signature:
    """What a step or workflow takes and gives, ready to record.

    Build it where the function is decorated: classes local to the enclosing function are found
    from there. Annotations are resolved by `resolve`, at start-up, or by the first use, because
    at decoration a name may still be defined further down in the module.
    """

    def __init__(
        self, fn: Callable[..., Any], *, name: str | None = None, codec: Codec | None = None
    ) -> None:
        self.fn = fn
        self.name = name or fn.__qualname__
        self.codec = codec or Codec()
        self._locals = _enclosing_names(fn, sys._getframe(1))
        self._arguments = f"{self.name}() arguments"  # what errors call them
        self._result = f"{self.name}() result"

    def resolve(self) -> None:
        """Resolve every annotation; does nothing the second time.

        Raises:
            TypeValidationError: one cannot be resolved or used; the text names the parameter and
                the cure.
        """
        _ = self._resolved  # kept from now on

    @cached_property
    def _resolved(self) -> _Resolved:
        hints = self._resolve_hints()
        signature = inspect.signature(self.fn)
        parameters = {
            name: self._parameter(each, hints.get(name, Any)) for name, each in signature.parameters.items()
        }
        result = self.codec.shape(hints.get("return", Any), self._result)
        return _Resolved(parameters, result, signature, *_call_by_position(parameters))

    def _parameter(self, given: inspect.Parameter, annotation: Any) -> _Parameter:
        path = self._argument(given.name)
        gathers = _GATHERING.get(given.kind, "")
        return _Parameter(
            name=given.name,
            path=path,
            shape=self.codec.shape(_annotation_of_all(gathers, annotation), path),
            by_position=given.kind in _BY_POSITION,
            gathers=gathers,
            needed=given.default is inspect.Parameter.empty and not gathers,
            default=given.default,
        )

    # --- arguments --------------------------------------------------------------------------------

    def encode_arguments(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        with_defaults: bool = False,
    ) -> bytes:
        """Record a call: a JSON object with the caller's own arguments by parameter name.

        ``with_defaults`` records defaults as well where they can be recorded: what a body starts
        with must not change when a later deploy changes a default.

        Raises:
            TypeValidationError: the arguments do not fit the function, as ``TypeError`` says it.
            SerializationError: one cannot be recorded.
        """
        to_tree, parameters = self.codec.to_tree, self._resolved.parameters
        tree = {}
        for name, value in self._bind(args, kwargs).items():
            parameter = parameters[name]
            tree[name] = to_tree(value, parameter.shape, path=parameter.path)
        if with_defaults:
            self._add_defaults(tree)
        return self.codec.dump(tree, self._arguments)

    def decode_arguments(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return ``(args, kwargs)`` to call the function with.

        A parameter added since the call was recorded takes its default.

        Raises:
            TypeValidationError: a recorded argument is unknown now or does not fit, or a parameter
                without a default was not recorded.
            SerializationError: the record cannot be read.
        """
        tree = self.codec.load(data, self._arguments)
        if type(tree) is not dict:
            raise SerializationError("the record is not an object", path=self._arguments)
        return self._call_with(tree, by_alias=False)

    def parse_arguments(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """As `decode_arguments`, for JSON a person wrote: ``[...]`` by position or ``{...}``.

        Raises:
            TypeValidationError, SerializationError: as for `decode_arguments`.
        """
        tree = self.codec.load(data, self._arguments)
        if type(tree) is list:
            tree = self._bind(tuple(tree), {})
            tree = {name: list(v) if type(v) is tuple else v for name, v in tree.items()}
        if type(tree) is not dict:
            raise TypeValidationError("arguments are a JSON list or object", path=f"{self.name}()")
        return self._call_with(tree, by_alias=True)

    # --- results ----------------------------------------------------------------------------------

    def encode_result(self, value: Any) -> bytes:
        """Record what the function returned.

        Raises:
            SerializationError, TypeValidationError: as for `Codec.encode`.
        """
        return self.codec.encode_shape(value, self._resolved.result, path=self._result)

    def decode_result(self, data: bytes) -> Any:
        """Return a recorded result.

        Raises:
            SerializationError, TypeValidationError: as for `Codec.decode`.
        """
        return self.codec.decode_shape(data, self._resolved.result, path=self._result)

    # --- inside -----------------------------------------------------------------------------------

    def _argument(self, name: str) -> str:
        return f"{self.name}() argument {name!r}"

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        _, _, signature, positional, at_least = self._resolved
        if not kwargs and at_least <= len(args) <= len(positional):
            return dict(zip(positional, args, strict=False))  # what `bind` would find, much sooner
        try:
            return signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeValidationError(str(error), path=f"{self.name}()") from None

    def _add_defaults(self, tree: dict[str, Any]) -> None:
        for name, parameter in self._resolved.parameters.items():
            if name in tree or parameter.needed or parameter.gathers:
                continue
            try:
                tree[name] = self.codec.to_tree(parameter.default, parameter.shape, path=parameter.path)
            except SerializationError:
                # A marker object: only the function itself knows what it stands for.
                continue

    def _call_with(self, tree: dict[str, Any], *, by_alias: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
        parameters = self._resolved.parameters
        if not tree.keys() <= parameters.keys():
            unknown = next(name for name in tree if name not in parameters)
            raise TypeValidationError(
                f"{unknown!r} is not a parameter; it takes {', '.join(parameters) or 'nothing'}",
                path=f"{self.name}()",
            )
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, path, shape, by_position, gathers, needed, default in parameters.values():
            if name in tree:
                value = self.codec.from_tree(tree[name], shape, path=path, by_alias=by_alias)
            elif needed:
                raise TypeValidationError("no value was given, and the parameter has no default", path=path)
            elif by_position:
                value = default  # passed all the same: what follows keeps its position
            else:
                continue
            if by_position:
                args.append(value)
            elif gathers == "*":
                args.extend(value)
            elif gathers:
                kwargs.update(value)
            else:
                kwargs[name] = value
        return tuple(args), kwargs

    def _resolve_hints(self) -> dict[str, Any]:
        names = getattr(inspect.unwrap(self.fn), "__globals__", {})
        resolved = {}
        for name, annotation in _raw_annotations(self.fn, self.name).items():
            stub = SimpleNamespace(__annotations__={name: annotation})
            try:
                hints = typing.get_type_hints(stub, names, self._locals, include_extras=True)
            except Exception as error:
                where = self._result if name == "return" else self._argument(name)
                raise _unresolvable(annotation, error, where) from error
            resolved[name] = hints[name]
        return resolved


def _call_by_position(parameters: dict[str, _Parameter]) -> tuple[tuple[str, ...], int]:
    """The parameters that a call without names fills, and how many it must; see `_Resolved`."""
    names = tuple(name for name, each in parameters.items() if each.by_position)
    needed = [each for each in parameters.values() if each.needed]
    fits = all(each.by_position for each in needed)
    return names, len(needed) if fits else len(names) + 1


def digest(data: bytes) -> str:
    """A short digest of recorded arguments, to notice that a call was made with others."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _raw_annotations(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return dict(fn.__annotations__)
    except NameError as error:
        # Python 3.14 evaluates annotations here.
        raise _unresolvable(error.name, error, f"{name}()") from error


def _unresolvable(annotation: object, error: Exception, where: str) -> TypeValidationError:
    missing = error.name if isinstance(error, NameError) and error.name else None
    cure = (
        f"{missing!r} is not defined where the function is; import it at run time, not only under "
        f"TYPE_CHECKING, and define it at module level"
        if missing
        else f"{type(error).__name__}: {error}"
    )
    return TypeValidationError(f"the annotation {annotation!r} cannot be resolved: {cure}", path=where)


def _annotation_of_all(gathers: str, annotation: Any) -> Any:
    """The annotation of what a parameter is bound to: ``*args: int`` is bound to a tuple."""
    if gathers == "*":
        return tuple[annotation, ...]
    if gathers == "**":
        if typing.get_origin(annotation) is typing.Unpack:
            return typing.get_args(annotation)[0]
        return dict[str, annotation]
    return annotation


def _enclosing_names(fn: Callable[..., Any], frame: FrameType | None) -> dict[str, Any]:
    """What ``fn``'s text annotations may name that is local to the functions around it."""
    wanted = _names_in_annotations(fn)
    if not wanted or _LOCALS not in fn.__qualname__:
        return {}
    found = dict(inspect.getclosurevars(inspect.unwrap(fn)).nonlocals)
    outer = fn.__qualname__.rpartition(_LOCALS)[0]
    while frame is not None:
        inside = f"{outer}{_LOCALS}".startswith(frame.f_code.co_qualname + _LOCALS)
        if inside and frame.f_globals.get("__name__") == fn.__module__:
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    # Only what is named: a frame's locals must not be kept alive by its functions.
    return {name: item for name, item in found.items() if name in wanted}


def _names_in_annotations(fn: Callable[..., Any]) -> set[str]:
    try:
        texts = [text for text in fn.__annotations__.values() if isinstance(text, str)]
    except NameError:
        # Python 3.14: they are not text, and find their own names when they are evaluated.
        return set()
    return {name for text in texts for name in _NAME.findall(text)}
