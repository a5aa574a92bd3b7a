"""JSON Schemas of the files that users write, from the pydantic models, the dimensions and their docstrings."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields
from typing import Any

from pydantic import BaseModel

from mpi_learn.training.configuration import TrainingConfiguration
from mpi_opt.configuration.configuration import DIMENSIONS, StudyConfiguration
from mpi_opt.core.search_space.belief import FACTOR
from mpi_opt.strategies import STRATEGIES, strategy_class
from mpi_opt.strategies.points.bookkeeping import Options

HYPERPARAMETER = {"type": "string", "pattern": r"^\$[A-Za-z_]\w*$", "description": "Takes a hyperparameter."}
CUSTOM_OPTIMIZER = {"$ref": "#/$defs/CustomOptimizer"}
SCHEMA_URL = "https://json-schema.org/draft/2020-12/schema"
REPRODUCIBLE = {
    "reproducible": {
        "type": "boolean",
        "default": False,
        "description": "The same seed gives the same list of trials on any number of blocks up to `lag`.",
    },
    "lag": {
        "type": "integer",
        "minimum": 1,
        "default": 16,
        "description": "With `reproducible`: largest number of trials at the same time. If there are more than 16 "
        "blocks, their number is the default.",
    },
}


def training_schema() -> dict[str, Any]:
    """JSON Schema of a training.yaml."""
    schema = _without_titles(TrainingConfiguration.model_json_schema())
    return {"$schema": SCHEMA_URL, "title": "training.yaml", **_with_short_forms(schema)}


def space_schema() -> dict[str, Any]:
    """JSON Schema of a space.yaml."""
    schema = _with_short_forms(_without_titles(StudyConfiguration.model_json_schema()))
    training = _with_hyperparameters(_with_short_forms(_without_titles(TrainingConfiguration.model_json_schema())))
    schema["$defs"] |= {f"Training{name}": value for name, value in training.pop("$defs").items()}
    text = json.dumps(training | {"$defs": schema["$defs"]})
    for name in TrainingConfiguration.model_json_schema()["$defs"]:
        text = text.replace(f'"#/$defs/{name}"', f'"#/$defs/Training{name}"')
    training = json.loads(text)
    schema["$defs"] = training.pop("$defs")
    schema["properties"]["training"] = training
    schema["properties"]["space"]["additionalProperties"] = {"oneOf": [dimension_schema(kind) for kind in DIMENSIONS]}
    schema["$defs"]["SearchSection"]["allOf"] = [_options_rule(name) for name in STRATEGIES]
    return {"$schema": SCHEMA_URL, "title": "space.yaml", **schema}


def dimension_schema(kind: str) -> dict[str, Any]:
    """JSON Schema of one line of ``space:``, from the dimension's class and docstring."""
    cls = DIMENSIONS[kind]
    number = {"integer": "integer", "real": "number"}.get(kind)
    types: dict[str, Any] = {
        "low": {"type": number},
        "high": {"type": number},
        "prior": {"enum": ["uniform", "log-uniform"], "default": "uniform"},
        "step": {"type": number, "exclusiveMinimum": 0, **({"default": 1} if kind == "integer" else {})},
        "categories": {"type": "array", "minItems": 1},
        "when": {"type": "object"},
        "default": {"type": number} if number else {},
        "expect": _belief_schema(is_number=number is not None),
    }
    of_all = _documented(DIMENSIONS["real"])
    common = ("when", "default", "expect") if number else ("when", "default")
    meanings = _documented(cls) | {name: of_all[name] for name in common}
    names = [field.name for field in fields(cls)]
    properties = {"type": {"const": kind, "description": "What kind of hyperparameter it is."}}
    properties |= {name: types[name] | {"description": meanings.get(name, "")} for name in names}
    required = ["type", *(name for name in names if name in ("low", "high", "categories"))]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _belief_schema(*, is_number: bool) -> dict[str, Any]:
    """JSON Schema of ``expect:`` (`mpi_opt.core.search_space.belief.read_belief`)."""
    widths = {"factor": {"type": "number", "exclusiveMinimum": 1, "default": FACTOR}}
    if is_number:
        widths |= {"spread": {"type": "number", "exclusiveMinimum": 0}}
    properties = {"value": {"type": "number"} if is_number else {}} | widths
    return {"type": "object", "properties": properties, "required": ["value"], "additionalProperties": False}


def options_of(strategy: str) -> type[Options]:
    """The options model in a strategy's file; `Options` where it has none of its own."""
    module = inspect.getmodule(strategy_class(strategy))
    models = [one for one in vars(module).values() if inspect.isclass(one) and issubclass(one, Options)]
    return next((one for one in models if one.__module__ == module.__name__), Options)


def option_properties(model: type[BaseModel]) -> dict[str, Any]:
    """Option -> its JSON Schema, with the meaning that the docstring gives."""
    meanings = _documented(Options) | _documented(model)
    properties = _without_titles(model.model_json_schema())["properties"]
    return {key: entry | {"description": meanings.get(key, "")} for key, entry in properties.items()}


def tidy(text: str) -> str:
    """One line, with Markdown's quotes."""
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split()))


def _options_rule(strategy: str) -> dict[str, Any]:
    options = {
        "type": "object",
        "properties": option_properties(options_of(strategy)) | REPRODUCIBLE,
        "additionalProperties": False,
    }
    condition = {"properties": {"strategy": {"const": strategy}}, "required": ["strategy"]}
    return {"if": condition, "then": {"properties": {"options": options}}}


def _documented(cls: type) -> dict[str, str]:
    """Name -> meaning, from the ``Args:`` or ``Attributes:`` of a docstring."""
    text = inspect.cleandoc(cls.__doc__ or "")
    match = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    if not match:
        return {}
    entries = re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", match[1], re.MULTILINE)
    return {name: tidy(meaning) for name, meaning in entries}


def _without_titles(schema: Any) -> Any:
    """The schema without the titles that pydantic makes of names."""
    if isinstance(schema, dict):
        return {key: _without_titles(value) for key, value in schema.items() if not _is_title(key, value)}
    return [_without_titles(one) for one in schema] if isinstance(schema, list) else schema


def _is_title(key: str, value: Any) -> bool:
    return key == "title" and isinstance(value, str)


def _with_short_forms(schema: Any) -> Any:
    """Allows ``optimizer: adam`` for ``{name: adam}``, also for functions, and a text for a list of one."""
    if isinstance(schema, list):
        return [_with_short_forms(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "mapping" in _section(schema, "discriminator"):
        names = sorted(schema["discriminator"]["mapping"])
        rest = {key: value for key, value in schema.items() if key not in ("oneOf", "discriminator")}
        return rest | {"anyOf": [{"enum": names}, *schema["oneOf"]]}
    content = {key: _with_short_forms(value) for key, value in schema.items()}
    if CUSTOM_OPTIMIZER in content.get("oneOf", []):
        content["anyOf"] = [*content.pop("oneOf"), {"type": "string", "pattern": ":"}]
    if content.get("type") == "array" and content.get("items") == {"type": "string"}:
        rest = {key: content.pop(key) for key in ("default", "description") if key in content}
        return rest | {"anyOf": [{"type": "string"}, content]}
    return content


def _section(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """The value of `key`, which may also be the name of a user's key."""
    return schema[key] if isinstance(schema.get(key), dict) else {}


def _with_hyperparameters(schema: Any) -> Any:
    """Allows ``$name`` in place of every value of a training.yaml."""
    if isinstance(schema, list):
        return [_with_hyperparameters(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    content = {key: _with_hyperparameters(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        content["properties"] = {
            key: {**_kept(value), "anyOf": [value, HYPERPARAMETER]} for key, value in content["properties"].items()
        }
    return content


def _kept(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: entry[key] for key in ("description", "default") if key in entry}
