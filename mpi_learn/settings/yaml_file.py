"""Reads YAML files, and converts the errors that pydantic finds to one message with file, key and cure."""

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
"""By the first word of pydantic's error types: a value of that type in YAML."""

LIMITS = {
    "greater_than_equal": ("ge", "{} or more"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "{} or less"),
    "less_than": ("lt", "less than {}"),
}
"""Pydantic's error type -> the name of the limit in its context, and the values within the limit in words."""


class InvalidValue(ValueError):
    """What a validator of a configuration raises.

    Args:
        problem: What was expected and what was found.
        cure: What to write instead.
    """

    def __init__(self, problem: str, cure: str) -> None:
        super().__init__(problem)
        self.cure = cure


class _Loader(yaml.SafeLoader):
    """Safe YAML in which ``1e-4`` is a number and a duplicate key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        """The mapping; raises if it has a duplicate key."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1 and key != "<<":
                line = node.start_mark.line + 1
                raise ConfigurationError(
                    f"duplicate key in the section that begins in line {line}", where=key, cure="keep one of them"
                )
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?([0-9][0-9_]*)(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds.

    Raises:
        ConfigurationError: There is no such file, it is not YAML, or it is not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        near = nearest(path.name, [other.name for other in path.parent.glob("*.y*ml")] if path.parent.is_dir() else [])
        reason = getattr(error, "strerror", None) or str(error)
        cure = f"did you mean {near}?" if near else "check the path, which starts from the current directory"
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
        ConfigurationError: One, about the first thing that is wrong: file and key, what was expected, what came, and
            for an unknown key the nearest known one.
    """
    try:
        return model_class.model_validate(data)
    except ValidationError as error:
        raise _translated(error, model_class, where) from None


def place(where: str, key: str) -> str:
    """Where a key stands: ``file: section.key``."""
    if not where or not key:
        return where or key
    return f"{where}.{key}" if ": " in where else f"{where}: {key}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `name` was probably meant to be."""
    best = max(known, key=lambda other: _likeness(name.lower(), other.lower()), default=None)
    return best if best is not None and _likeness(name.lower(), best.lower()) >= 0.5 else None


def _likeness(name: str, other: str) -> float:
    """From 0 to 1.2: what begins alike is more probably meant."""
    n_alike = next((i for i, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), min(len(name), len(other)))
    return difflib.SequenceMatcher(None, name, other).ratio() + 0.2 * n_alike / max(len(name), 1)


def _translated(error: ValidationError, model_class: type[BaseModel], where: str) -> ConfigurationError:
    found = error.errors()
    found.sort(key=lambda one: one["type"] != "extra_forbidden")  # a misspelt key explains a missing one
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
    if words:  # the key also takes these words
        cure = ", or ".join(filter(None, [cure, *words]))
    others = {".".join(one) for one in paths} - {".".join(path)}
    if others:
        cure = "; ".join(filter(None, [cure, f"wrong as well: {', '.join(sorted(others))}"]))
    return ConfigurationError(problem, where=place(where, ".".join(path)), cure=cure)


def _walked(model_class: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[list[str], list[type[BaseModel]]]:
    """The path as the user wrote it, and the model classes of the section in which its last key stands.

    Pydantic puts into its paths which alternative of a union it tried; the user wrote no such key.
    """
    classes, path, section = [model_class], [], [model_class]
    for part in map(str, loc):
        named = [cls for cls in classes if "name" in cls.model_fields and cls.model_fields["name"].default == part]
        if named and not any(part in _keys(cls) for cls in classes):
            classes = named
        elif part in {cls.__name__ for cls in classes}:
            continue
        elif not re.search(r"[\[(]|^(str|int|float|bool|constrained-.*)$", part):
            path.append(part)
            section = classes
            annotations = [cls.model_fields[part].annotation for cls in classes if part in cls.model_fields]
            classes = [model for annotation in annotations for model in _models_in(annotation)]
    return path, section


def _keys(model_class: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model_class.model_fields.items()]


def _explained(first: Any, path: list[str], section: list[type[BaseModel]]) -> tuple[str, str]:
    kind, value = first["type"], first["input"]
    if kind == "extra_forbidden":
        for other in (getattr(cls, "other_names", {}) for cls in section):
            if path[-1] in other:
                return "unknown key", other[path[-1]]
        known = list(dict.fromkeys(key for cls in section for key in _keys(cls)))
        near = nearest(path[-1], known)
        cure = f"did you mean {near}?" if near else ""
        return "unknown key", f"{cure} known keys: {', '.join(known)}".strip() if known else cure
    if kind == "missing":
        return "this key is required", f"add `{path[-1]}: …`"
    if kind == "union_tag_not_found":
        return f"expected a name, found {_shown(value)}", "write `name: …`"
    if kind == "union_tag_invalid":
        known = re.findall(r"'([^']+)'", first["ctx"]["expected_tags"])
        return _no_such(str(first["ctx"]["tag"]), known)
    if kind in ("literal_error", "enum"):
        known = re.findall(r"'([^']+)'", str(first["ctx"]["expected"]))
        return _no_such(_shown(value), known)
    key = path[-1] if path else ""
    if first["loc"][-1:] == ("[key]",):
        return f"expected a text as the key, found {_shown(value)}", f'write "{value}" in quotes'
    if kind == "path_type":
        return f"expected a path, found {_shown(value)}", f"write `{key}: FOLDER/FILE`"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return f"expected a section of keys, found {_shown(value)}", f"write `{key}: {{key: value, …}}`"
    if kind == "string_too_short":
        return f"expected a text that is not empty, found {_shown(value)}", f"write `{key}: NAME`"
    said = first["msg"].removeprefix("Value error, ")
    cure = getattr(first.get("ctx", {}).get("error"), "cure", "") or _example(key, first)
    expected = re.sub(r"^Input should be (?:a )?(?:valid )?|, unable to parse.*$", "", said)
    return (said if expected == said else f"expected {expected}, found {_shown(value)}"), cure


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
