"""Validates configurations with pydantic. An invalid value becomes one message with file, key and cure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from mpi_learn.errors import ConfigurationError
from mpi_learn.settings.suggestions import MISSPELT_LIKENESS, nearest, suggestion


class Strict(BaseModel):
    """Refuses truth values as numbers: pydantic takes ``trials: yes`` for one trial."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_truth_values(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        fields = cls.model_fields
        return {
            name: _without_truth_values(value, fields[name].annotation) if name in fields else value
            for name, value in data.items()
        }


class _NoNumber:
    """A truth value where a number is expected. Pydantic refuses it, as any other object."""

    def __init__(self, value: bool) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


def _without_truth_values(value: Any, annotation: Any) -> Any:
    """The value of a field, in which each truth value where only numbers are accepted is a `_NoNumber`."""
    if isinstance(value, bool):
        return _NoNumber(value) if _is_of_number(annotation) else value
    if not isinstance(value, list | dict):
        return value
    # of list[int] and of dict[str, int], the last argument is the type of the values
    kinds = [get_args(one)[-1] for one in _alternatives(annotation) if get_origin(one) is type(value)]
    if not kinds:
        return value
    element = reduce(or_, kinds)
    if isinstance(value, list):
        return [_without_truth_values(one, element) for one in value]
    return {key: _without_truth_values(one, element) for key, one in value.items()}


def _is_of_number(annotation: Any) -> bool:
    """Whether a field accepts numbers, but no truth values."""
    kinds = set(_alternatives(annotation))
    return bool(kinds & {int, float}) and bool not in kinds


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The types that a field accepts, one by one."""
    if get_origin(annotation) in (Union, UnionType):
        for one in get_args(annotation):
            yield from _alternatives(one)
    elif get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) is Literal:
        yield from map(type, get_args(annotation))
    else:
        yield annotation


class Section(Strict):
    """A section of the file: immutable, and an unknown key is an error.

    Attributes:
        equivalents: Key of another library that a user may try -> what to write instead.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    equivalents: ClassVar[Mapping[str, str]] = {}


def as_section(value: Any) -> Any:
    """``optimizer: adam`` is short for ``optimizer: {name: adam}``."""
    return {"name": value} if isinstance(value, str) else value


def as_list(value: Any) -> Any:
    """``train: a.h5`` is short for ``train: [a.h5]``."""
    return [value] if isinstance(value, str) else value


def listed(value: Any) -> Any:
    """``callbacks: CSVLogger`` is short for ``callbacks: [CSVLogger]``; so is a mapping for a list of it."""
    return value if isinstance(value, list) else [value]


def without_numpy(value: Any) -> Any:
    """The same with Python's numbers instead of those of NumPy, which a checkpoint cannot store as JSON."""
    if isinstance(value, dict):
        return {name: without_numpy(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_numpy(entry) for entry in value]
    return value.item() if getattr(value, "shape", None) == () else value  # NumPy is not imported here


Validated = TypeVar("Validated", bound=BaseModel)

EXPECTED = {
    "int": ("an integer", "5"),
    "float": ("a number", "0.5"),
    "finite": ("a finite number", "1"),
    "string": ("a text", "NAME"),
    "bool": ("true or false", "true"),
    "list": ("a list", "[a, b]"),
    "tuple": ("a list", "[a, b]"),
}
"""First word of pydantic's error type -> the expected type, and an example in YAML."""

LIMITS = {
    "greater_than_equal": ("ge", "{:g} or more"),
    "greater_than": ("gt", "more than {:g}"),
    "less_than_equal": ("le", "{:g} or less"),
    "less_than": ("lt", "less than {:g}"),
}
"""Pydantic's error type -> the name of the limit in its context, and the permitted values."""

A_SECTION = "a section of keys"
SECTION = (f"expected {A_SECTION}, found {{found}}", "write `{key}: {{key: value, …}}`")
EXPLANATIONS = {
    "missing": ("this key is required", "add `{key}: …`"),
    "union_tag_not_found": ("expected a name, found {found}", "write `name: …`"),
    "path_type": ("expected a path, found {found}", "write `{key}: FOLDER/FILE`"),
    "model_type": SECTION,
    "dict_type": SECTION,
    "model_attributes_type": SECTION,
    "string_too_short": ("expected a text that is not empty, found {found}", "write `{key}: NAME`"),
    "too_short": ("expected a list that is not empty, found {found}", "write `{key}: [a, b]`"),
}
"""Pydantic's error type -> problem and cure."""

CHOICES = ("union_tag_invalid", "literal_error")
"""Pydantic's error types of a value that is not one of several."""


class InvalidValue(ValueError):
    """An invalid value, as raised by the validators of a configuration."""

    def __init__(self, problem: str, cure: str) -> None:
        super().__init__(problem)
        self.cure = cure


@dataclass(frozen=True)
class _Key:
    """A key of the user's file.

    Attributes:
        path: The names of its sections and its own name.
        section: The model classes of the section that contains it.
        types: Its type annotations.
        is_in_list: Whether it is the index of an entry of a list.
    """

    path: tuple[str, ...]
    section: tuple[type[BaseModel], ...]
    types: tuple[Any, ...]
    is_in_list: bool = False

    @property
    def models(self) -> tuple[type[BaseModel], ...]:
        """The model classes among its types."""
        return tuple(model for kind in self.types for model in _models_in(kind))


@dataclass(frozen=True)
class _Invalid:
    """One of pydantic's errors, and the key to which it belongs."""

    error: Any
    key: _Key

    @property
    def kind(self) -> str:
        """Pydantic's name of the error."""
        return str(self.error["type"])

    @property
    def expected(self) -> str:
        """The expected type; empty if the error is not about the type."""
        if EXPLANATIONS.get(self.kind) is SECTION:
            return A_SECTION
        return EXPECTED.get(self.kind.partition("_")[0], ("", ""))[0]

    @property
    def is_of_name(self) -> bool:
        """Whether the name of the key is invalid, and not its value."""
        return bool(self.error["loc"][-1:] == ("[key]",))

    @property
    def misspelt(self) -> str | None:
        """The key of the user that is probably this missing `name`; None if there is none."""
        return _misspelt(self.error, self.key) if self.kind == "missing" else None

    @property
    def _place(self) -> tuple[str, ...]:
        """The path of the key.

        If a key is missing that only one alternative of a union requires, it is the path of its section instead.
        """
        is_of_alternative = self.kind == "missing" and len(self.error["loc"]) > len(self.key.path)
        return self.key.path[:-1] if is_of_alternative and not self.misspelt else self.key.path

    def is_unlikely(self, found: Sequence[_Invalid]) -> bool:
        """Whether the error is of an alternative of a union that the user did not mean.

        Another alternative is more likely if it finds an error further inside the user's value, or if it lacks only a
        misspelt key.
        """
        if self.misspelt:
            return False
        if any(other.misspelt and _contains(other.key.path[:-1], self.key.path) for other in found):
            return True
        places = [other._place if self.kind == "missing" else other.key.path for other in found]
        return any(place != self._place and _contains(self._place, place) for place in places)


def validated(model_class: type[Validated], data: Any, where: str) -> Validated:
    """`data` as an instance of `model_class`.

    Args:
        where: The file, or file and section (``"space.yaml: training"``); the key is added to it.

    Raises:
        ConfigurationError: Describes the first invalid key: file and key, what was expected, what was found, and for
            an unknown key the nearest known one.
    """
    try:
        return model_class.model_validate(data)
    except ValidationError as error:
        raise _translated(error, model_class, data, where) from None


def key_in_file(where: str, key: str) -> str:
    """The location of a key: ``file: section.key``."""
    if not where or not key:
        return where or key
    return f"{where}.{key}" if ": " in where else f"{where}: {key}"


def _translated(error: ValidationError, model_class: type[BaseModel], data: Any, where: str) -> ConfigurationError:
    found = [_Invalid(one, _key_of(one, model_class, data)) for one in error.errors()]
    found = [one for one in found if not one.is_unlikely(found)]
    found.sort(key=lambda one: one.kind != "extra_forbidden")  # may explain a missing key
    key = found[0].key
    same = [one for one in found if one.key.path == key.path and one.is_of_name == found[0].is_of_name]
    first = next((one for one in same if one.kind == "string_type"), same[0])  # a name is the shortest form
    problem, cure = _explained(first.error, key)
    if first.kind not in CHOICES and "literal_error" in [one.kind for one in same]:  # the key also accepts some words
        cure = ", or ".join(filter(None, [cure, *_choices(key.types)]))
    expected = list(dict.fromkeys(one.expected for one in [first, *same] if one.expected))
    if len(expected) > 1 and first.kind not in LIMITS:
        wanted = f"{', '.join(expected[:-1])} or {expected[-1]}"
        problem = f"expected {wanted}, found {_shown(first.error['input'])}"
    others = {".".join(one.key.path) for one in found} - {".".join(key.path)}
    if others:
        cure = "; ".join(filter(None, [cure, f"also invalid: {', '.join(sorted(others))}"]))
    return ConfigurationError(problem, where=key_in_file(where, ".".join(key.path)), cure=cure)


def _contains(section: tuple[str, ...], path: tuple[str, ...]) -> bool:
    return path[: len(section)] == section


def _key_of(error: Any, model_class: type[BaseModel], data: Any) -> _Key:
    """The key of the user's file to which an error belongs.

    Pydantic's location also contains the alternatives of unions and tags, which are not in the user's `data`.
    """
    key = _Key((), (), (model_class,))
    for number, part in enumerate(error["loc"], start=1):
        is_absent = error["type"] in ("missing", "extra_forbidden") and number == len(error["loc"])
        content = _content(data)
        if is_absent or str(part) in content:
            key, data = _inside(key, str(part), isinstance(data, list | tuple)), content.get(str(part))
        else:
            chosen = tuple(model for model in key.models if part in (model.__name__, *_tags(model)))
            key = replace(key, types=chosen or key.types)
    return key


def _inside(section: _Key, name: str, is_in_list: bool) -> _Key:
    """The key `name` in a section; an entry of a list or mapping has all types in the annotation of its container."""
    types = tuple(model.model_fields[name].annotation for model in section.models if name in model.model_fields)
    return _Key((*section.path, name), section.models, types or section.types, is_in_list)


def _content(data: Any) -> dict[str, Any]:
    """The values of a section or list by key or index."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list | tuple) else ()
    return {str(key): value for key, value in items}


def _models_in(kind: Any) -> list[type[BaseModel]]:
    """The model classes in a type annotation."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [model for part in get_args(kind) for model in _models_in(part)]


def _misspelt(error: Any, key: _Key) -> str | None:
    """The key of the user that is probably a missing `name`; None if there is none.

    Only in sections whose other keys depend on the name. In all others, a misspelt key is an error of its own.
    """
    if error["type"] == "missing" and all(model.model_config.get("extra") == "allow" for model in key.section):
        models = key.section
    elif error["type"] == "union_tag_not_found":
        models = key.models
    else:
        return None
    known = {name for model in models for name in model.model_fields}
    candidates = [str(key) for key, value in error["input"].items() if key not in known and isinstance(value, str)]
    return nearest("name", candidates, MISSPELT_LIKENESS)


def _choices(types: Sequence[Any]) -> list[str]:
    """The names that a key of these types accepts: those of literals, and the tags of model classes."""
    found: list[str] = []
    for kind in types:
        if get_origin(kind) is Literal:
            found += map(str, get_args(kind))
        elif tags := _tags(kind):
            found += tags
        else:
            found += _choices(get_args(kind))
    return list(dict.fromkeys(found))


def _tags(kind: Any) -> list[str]:
    """The names of a model class that is selected by its `name`."""
    field = kind.model_fields.get("name") if isinstance(kind, type) and issubclass(kind, BaseModel) else None
    if field is None:
        return []
    literals = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return [field.default] if isinstance(field.default, str) else list(literals)


def _explained(error: Any, key: _Key) -> tuple[str, str]:
    """Problem and cure of one of pydantic's errors."""
    kind, found, context = error["type"], _shown(error["input"]), error.get("ctx", {})
    name = key.path[-1] if key.path else ""
    # in this order: an error of a key of a mapping has the same type as one of its value
    if kind == "extra_forbidden":
        return "unknown key", _cure_of_unknown(name, key.section)
    if kind in CHOICES:
        wanted = context.get("tag", found)
        return f"there is no {wanted}", suggestion(wanted, _choices(key.types))
    if error["loc"][-1:] == ("[key]",):
        expected, _ = EXPECTED.get(kind.partition("_")[0], ("another type", ""))
        cure = f'write "{error["input"]}" in quotes' if kind == "string_type" else "write, for example, `0: …`"
        return f"expected {expected} as the key, found {found}", cure
    if kind in EXPLANATIONS:
        problem, cure = EXPLANATIONS[kind]
        if misspelt := _misspelt(error, key):
            cure = f"write `name` instead of `{misspelt}`"
        return problem.format(found=found), cure.format(key=name)
    if kind in LIMITS:
        limit, words = LIMITS[kind]
        permitted = words.format(context[limit])
        return f"expected {permitted}, found {found}", f"write a value of {permitted}"
    if "error" in context:
        return str(context["error"]), getattr(context["error"], "cure", "")
    expected, example = EXPECTED.get(kind.partition("_")[0], ("", ""))
    if not expected:
        return error["msg"], ""
    example = example if key.is_in_list else f"{name}: {example}"
    return f"expected {expected}, found {found}", f"write, for example, `{example}`"


def _cure_of_unknown(key: str, section: Sequence[type[BaseModel]]) -> str:
    """The equivalent of a key of another library, or the nearest known key and the list of known keys."""
    for cls in section:
        if key in (equivalents := getattr(cls, "equivalents", {})):
            return str(equivalents[key])
    known = dict.fromkeys(name for cls in section for name in cls.model_fields)
    return suggestion(key, known, "known keys")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
