"""Validates configurations with pydantic. An invalid value becomes one message with file, key and cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from mpi_learn.errors import ConfigurationError
from mpi_learn.settings.suggestions import suggestion

Validated = TypeVar("Validated", bound=BaseModel)

EXPECTED = {
    "int": ("an integer", "5"),
    "float": ("a number", "0.5"),
    "finite": ("a finite number", "1"),
    "string": ("a text", "a text"),
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

SECTION = ("expected a section of keys, found {found}", "write `{key}: {{key: value, …}}`")
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
    """

    path: tuple[str, ...]
    section: tuple[type[BaseModel], ...]
    types: tuple[Any, ...]

    @property
    def models(self) -> tuple[type[BaseModel], ...]:
        """The model classes among its types."""
        return tuple(model for kind in self.types for model in _models_in(kind))


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
    errors = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")  # may explain a missing key
    keys = [_key_of(error, model_class, data) for error in errors]
    first, key = errors[0], keys[0]
    problem, cure = _explained(first, key)
    also = [one["type"] for one, other in zip(errors, keys, strict=True) if other.path == key.path]
    if "literal_error" in also and first["type"] not in CHOICES:  # the key also accepts some words
        cure = ", or ".join(filter(None, [cure, *_choices(key.types)]))
    others = {".".join(other.path) for other in keys} - {".".join(key.path)}
    if others:
        cure = "; ".join(filter(None, [cure, f"also invalid: {', '.join(sorted(others))}"]))
    return ConfigurationError(problem, where=key_in_file(where, ".".join(key.path)), cure=cure)


def _key_of(error: Any, model_class: type[BaseModel], data: Any) -> _Key:
    """The key of the user's file to which an error belongs.

    Pydantic's location also contains the alternatives of unions and tags, which are not in the user's `data`.
    """
    key = _Key((), (), (model_class,))
    for number, part in enumerate(error["loc"], start=1):
        is_absent = error["type"] in ("missing", "extra_forbidden") and number == len(error["loc"])
        content = _content(data)
        if is_absent or str(part) in content:
            key, data = _inside(key, str(part)), content.get(str(part))
        else:
            chosen = tuple(model for model in key.models if part in (model.__name__, *_tags(model)))
            key = _Key(key.path, key.section, chosen or key.types)
    return key


def _inside(section: _Key, name: str) -> _Key:
    """The key `name` in a section; an entry of a list or mapping has all types in the annotation of its container."""
    types = tuple(model.model_fields[name].annotation for model in section.models if name in model.model_fields)
    return _Key((*section.path, name), section.models, types or section.types)


def _content(data: Any) -> dict[str, Any]:
    """The values of a section or list by key or index."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list | tuple) else ()
    return {str(key): value for key, value in items}


def _models_in(kind: Any) -> list[type[BaseModel]]:
    """The model classes in a type annotation."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [model for part in get_args(kind) for model in _models_in(part)]


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
    if kind == "extra_forbidden":
        return "unknown key", _cure_of_unknown(name, key.section)
    if kind in CHOICES:
        wanted = context.get("tag", found)
        return f"there is no {wanted}", suggestion(wanted, _choices(key.types))
    if error["loc"][-1:] == ("[key]",):
        return f"expected a text as the key, found {found}", f'write "{error["input"]}" in quotes'
    if kind in EXPLANATIONS:
        problem, cure = EXPLANATIONS[kind]
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
    return f"expected {expected}, found {found}", f"write, for example, `{name}: {example}`"


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
