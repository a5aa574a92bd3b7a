"""Reading YAML, and turning what pydantic finds wrong into one message that names file, key and cure."""

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


class _Loader(yaml.SafeLoader):
    """Safe YAML in which ``1e-4`` is a number, as everyone means it, and a key stands only once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        """The mapping, unless a key of it stands twice."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1 and key != "<<":
                line = node.start_mark.line + 1
                raise ConfigurationError(f"the key stands twice in the section of line {line}", where=key)
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
        raise ConfigurationError(
            f"cannot read the file: {reason}", where=str(path), cure=f"did you mean {near}?" if near else ""
        ) from error
    try:
        content = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"this is not YAML: {_one_line(error)}", where=str(path)) from error
    except UserError as error:
        raise error.at(str(path)) from None
    except (ValueError, AttributeError, RecursionError) as error:  # dates and numbers that are none, endless brackets
        raise ConfigurationError(f"this is not YAML: {error}", where=str(path)) from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"expected `key: value` lines, found {_shown(content)}", where=str(path))
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
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, UserError):
        inner = ".".join(filter(None, [*path, raised.where]))
        return ConfigurationError(raised.problem, where=place(where, inner), cure=raised.cure)
    problem, cure = _explained(first, path, section)
    others = {".".join(_walked(model_class, one["loc"])[0]) for one in found[1:]} - {".".join(path)}
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
    if kind == "path_type":
        return f"expected a path, found {_shown(value)}", ""
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return f"expected a section of keys, found {_shown(value)}", ""
    said = first["msg"].removeprefix("Value error, ")
    expected = re.sub(r"^Input should be (?:a )?(?:valid )?|, unable to parse.*$", "", said)
    if expected == said:
        return said, ""
    return f"expected {expected}, found {_shown(value)}", ""


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
