"""Reads YAML files, and converts validation errors of pydantic to one message with file, key and cure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from mpi_learn.errors import ConfigurationError, UserError

Validated = TypeVar("Validated", bound=BaseModel)

EXAMPLES = {"int": "5", "float": "0.5", "string": "a text", "bool": "true", "list": "[a, b]", "tuple": "[a, b]"}
"""First word of pydantic's error types -> a YAML value of the expected type."""

LIMITS = {
    "greater_than_equal": ("ge", "{} or more"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "{} or less"),
    "less_than": ("lt", "less than {}"),
}
"""Pydantic's error type -> the name of the limit in its context, and a description of the permitted values."""

SECTION = ("expected a section of keys, found {found}", "write `{key}: {{key: value, …}}`")
EXPLANATIONS = {
    "missing": ("this key is required", "add `{key}: …`"),
    "union_tag_not_found": ("expected a name, found {found}", "write `name: …`"),
    "path_type": ("expected a path, found {found}", "write `{key}: FOLDER/FILE`"),
    "model_type": SECTION,
    "dict_type": SECTION,
    "model_attributes_type": SECTION,
    "string_too_short": ("expected a text that is not empty, found {found}", "write `{key}: NAME`"),
}
"""Pydantic's error type -> problem and cure."""

CHOICES = {"union_tag_invalid": "expected_tags", "literal_error": "expected", "enum": "expected"}
"""Pydantic's error type of a value that is not one of several -> the name of the valid values in its context."""


class InvalidValue(ValueError):
    """An invalid value, as raised by the validators of a configuration.

    Args:
        problem: What was expected and what was found.
        cure: What to write instead.
    """

    def __init__(self, problem: str, cure: str) -> None:
        super().__init__(problem)
        self.cure = cure


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Safe YAML in which ``1e-4`` is a number and a duplicate key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping; raises if it has a duplicate key."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1 and key != "<<":
                line = node.start_mark.line + 1
                raise ConfigurationError(
                    f"duplicate key in the section that begins in line {line}", where=key, cure="keep one of them"
                )
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?([0-9][0-9_]*)(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds.

    Raises:
        ConfigurationError: The file cannot be read, is not valid YAML, or is not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        near = nearest(path.name, [other.name for other in path.parent.glob("*.y*ml")] if path.parent.is_dir() else [])
        reason = getattr(error, "strerror", None) or str(error)
        cure = f"did you mean {near}?" if near else "check the path, which is relative to the current directory"
        raise ConfigurationError(f"cannot read the file: {reason}", where=str(path), cure=cure) from error
    try:
        content = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        cure = "check the indentation, brackets and quotes there"
        raise ConfigurationError(f"this is not YAML: {_one_line(error)}", where=str(path), cure=cure) from error
    except UserError as error:
        raise error.at(str(path)) from None
    except (ValueError, AttributeError, RecursionError) as error:  # impossible dates and numbers, too many brackets
        cure = "put a text in quotes; nest fewer brackets"
        raise ConfigurationError(f"this is not YAML: {error}", where=str(path), cure=cure) from error
    if not isinstance(content, dict):
        cure = "see the examples in docs/tutorial.md"
        raise ConfigurationError(f"expected `key: value` lines, found {_shown(content)}", where=str(path), cure=cure)
    return content


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{place}{getattr(error, 'problem', None) or error}"


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
        raise _translated(error, model_class, where) from None


def place(where: str, key: str) -> str:
    """The location of a key: ``file: section.key``."""
    if not where or not key:
        return where or key
    return f"{where}.{key}" if ": " in where else f"{where}: {key}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name in `known` that is most similar to `name`; None if none is similar."""
    best = max(known, key=lambda other: _likeness(name.lower(), other.lower()), default=None)
    return best if best is not None and _likeness(name.lower(), best.lower()) >= 0.5 else None


def _likeness(name: str, other: str) -> float:
    """Similarity from 0 to 1.2; a common beginning counts extra."""
    n_alike = next((i for i, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), min(len(name), len(other)))
    return difflib.SequenceMatcher(None, name, other).ratio() + 0.2 * n_alike / max(len(name), 1)


def _translated(error: ValidationError, model_class: type[BaseModel], where: str) -> ConfigurationError:
    found = error.errors()
    found.sort(key=lambda one: one["type"] != "extra_forbidden")  # a misspelt key explains a missing key
    first = found[0]
    path, section = _walked(model_class, first["loc"])
    problem, cure = _explained(first, path, section)
    paths = [_walked(model_class, one["loc"])[0] for one in found]
    words = [
        word
        for one, its_path in zip(found[1:], paths[1:], strict=True)
        if one["type"] == "literal_error" and its_path == path and first["type"] != "literal_error"
        for word in re.findall(r"'([^']+)'", str(one["ctx"]["expected"]))
    ]
    if words:  # the key also accepts these words
        cure = ", or ".join(filter(None, [cure, *words]))
    others = {".".join(one) for one in paths} - {".".join(path)}
    if others:
        cure = "; ".join(filter(None, [cure, f"also invalid: {', '.join(sorted(others))}"]))
    return ConfigurationError(problem, where=place(where, ".".join(path)), cure=cure)


def _walked(model_class: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[list[str], list[type[BaseModel]]]:
    """The path of a key as in the user's file, and the model classes of the section that contains the key.

    Pydantic's paths also contain the alternatives of unions, which are not keys of the file.
    """
    classes, path, section = [model_class], [], [model_class]
    for part in map(str, loc):
        variants = _variants(classes, part)
        if variants:
            classes = variants
        elif part in {cls.__name__ for cls in classes}:
            continue
        elif not re.search(r"[\[(]|^(str|int|float|bool|constrained-.*)$", part):
            path.append(part)
            section = classes
            classes = _models_under(classes, part)
    return path, section


def _variants(classes: list[type[BaseModel]], name: str) -> list[type[BaseModel]]:
    """The alternatives of a tagged union with the tag `name`; empty if `name` is a key."""
    if any(name in _keys(cls) for cls in classes):
        return []
    fields = [(cls, cls.model_fields["name"]) for cls in classes if "name" in cls.model_fields]
    return [cls for cls, field in fields if name in get_args(field.annotation)]


def _models_under(classes: list[type[BaseModel]], key: str) -> list[type[BaseModel]]:
    """The model classes of the sections that may follow `key`."""
    annotations = [cls.model_fields[key].annotation for cls in classes if key in cls.model_fields]
    return [model for annotation in annotations for model in _models_in(annotation)]


def _keys(model_class: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model_class.model_fields.items()]


def _explained(error: Any, path: list[str], section: list[type[BaseModel]]) -> tuple[str, str]:
    """Problem and cure of one of pydantic's errors."""
    kind, found, key = error["type"], _shown(error["input"]), path[-1] if path else ""
    if kind == "extra_forbidden":
        return "unknown key", _cure_of_unknown(key, section)
    if kind in CHOICES:
        known = re.findall(r"'([^']+)'", str(error["ctx"][CHOICES[kind]]))
        return _no_such(str(error["ctx"]["tag"]) if kind == "union_tag_invalid" else found, known)
    if error["loc"][-1:] == ("[key]",):
        return f"expected a text as the key, found {found}", f'write "{error["input"]}" in quotes'
    if kind in EXPLANATIONS:
        problem, cure = EXPLANATIONS[kind]
        return problem.format(found=found), cure.format(key=key)
    message = error["msg"].removeprefix("Value error, ")
    cure = getattr(error.get("ctx", {}).get("error"), "cure", "") or _example(key, error)
    expected = re.sub(r"^Input should be (?:a )?(?:valid )?|, unable to parse.*$", "", message)
    return (message if expected == message else f"expected {expected}, found {found}"), cure


def _cure_of_unknown(key: str, section: list[type[BaseModel]]) -> str:
    """The equivalent of a key of another library, or the nearest known key and the list of known keys."""
    for cls in section:
        if key in (other := getattr(cls, "other_names", {})):
            return str(other[key])
    known = list(dict.fromkeys(key for cls in section for key in _keys(cls)))
    near = nearest(key, known)
    cure = f"did you mean {near}?" if near else ""
    return f"{cure} known keys: {', '.join(known)}".strip() if known else cure


def _example(key: str, error: Any) -> str:
    """What to write where a value has the wrong type or is outside of its limits."""
    if error["type"] in LIMITS:
        name, words = LIMITS[error["type"]]
        return f"write a value of {words.format(format(error['ctx'][name], 'g'))}"
    example = EXAMPLES.get(error["type"].partition("_")[0])
    return f"write, for example, `{key}: {example}`" if example else ""


def _no_such(name: str, known: list[str]) -> tuple[str, str]:
    near = nearest(name, known)
    return f"there is no {name}", f"{f'did you mean {near}? ' if near else ''}known: {', '.join(known)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
