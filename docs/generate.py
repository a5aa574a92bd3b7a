"""Writes the reference pages and the JSON Schemas from the command lines, models and docstrings.

``python docs/generate.py`` writes them; a test fails while they say something else than the code.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from json_schemas import (
    REPRODUCIBLE,
    dimension_schema,
    option_properties,
    options_of,
    space_schema,
    tidy,
    training_schema,
)

from mpi_learn.cli.commands import app as mpi_learn_app
from mpi_learn.training.configuration import TrainingConfiguration
from mpi_opt.cli.main import _app as mpi_opt_app
from mpi_opt.configuration.configuration import DIMENSIONS, StudyConfiguration
from mpi_opt.strategies import STRATEGIES, strategy_class
from mpi_opt.strategies.points.bookkeeping import Options

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))
NOTE = "<!-- written by docs/generate.py: change the code, then run it again -->\n"


def pages() -> dict[Path, str]:
    """What every generated file should hold, by its path below docs/."""
    return {
        Path("reference/commands.md"): commands_page(),
        Path("reference/space.md"): space_page(),
        Path("reference/training.md"): training_page(),
        Path("reference/models.md"): models_page(),
        Path("reference/strategies.md"): strategies_page(),
        Path("schema/space.schema.json"): json.dumps(space_schema(), indent=1, ensure_ascii=False) + "\n",
        Path("schema/training.schema.json"): json.dumps(training_schema(), indent=1, ensure_ascii=False) + "\n",
    }


def commands_page() -> str:
    """Every command with its arguments and options."""
    lines = [NOTE, "# Commands\n"]
    lines.append(
        "`mpi-opt` is the same as `python -m mpi_opt`, and `mpi-learn` as `python -m mpi_learn`. Exit status: 0 "
        "finished, 1 failed, 2 invalid input, 75 shut down before it was finished (the same command continues), "
        "130 interrupted by the user. Both programs take `--version` and `--debug`, which shows the traceback of an "
        "error and may come before or after the command; every command takes `--help`.\n"
    )
    for program, application in (("mpi-opt", mpi_opt_app()), ("mpi-learn", mpi_learn_app)):
        for command in application.registered_commands:
            lines.append(_command_section(program, command))
    return "\n".join(lines)


def space_page() -> str:
    """Every key of a space.yaml."""
    schema = StudyConfiguration.model_json_schema()
    lines = [NOTE, "# space.yaml\n", EDITORS.format(schema="space"), "## Top level\n", _table(schema, schema["$defs"])]
    lines += _sections(schema, "")
    lines.append(HYPERPARAMETERS)
    for kind, dimension in DIMENSIONS.items():
        lines += [f"### `type: {kind}`\n\n{_summary(dimension)}\n", _table(dimension_schema(kind), {})]
    lines.append(TRAINING)
    return "\n".join(lines)


def training_page() -> str:
    """Every key of a training.yaml."""
    schema = TrainingConfiguration.model_json_schema()
    lines = [NOTE, "# training.yaml\n", EDITORS.format(schema="training"), "## Top level\n"]
    lines += [_table(schema, schema["$defs"]), *_sections(schema, "")]
    return "\n".join(lines)


def models_page() -> str:
    """Every kind of model that the tests train, and what is refused."""
    from tests.mpi_learn.conformance.keras_rows import ROWS as KERAS
    from tests.mpi_learn.conformance.keras_torch_rows import ROWS as KERAS_ON_TORCH
    from tests.mpi_learn.conformance.torch_rows import ROWS as TORCH

    lines = [NOTE, "# Supported models\n", MODELS]
    for title, rows in (("Keras", KERAS), ("PyTorch", TORCH)):
        trained = [(row.says, _on_ranks(row)) for row in rows.values() if not row.refused]
        refused = [(row.says, row.refused) for row in rows.values() if row.refused]
        lines += [f"## {title}\n", _rows(("kind of model", "result on several ranks"), trained)]
        lines += [f"### Refused by {title} models\n", _rows(("refused", "part of the message"), refused)]
        if title == "Keras":
            also = [
                (row.says, row.refused) for name, row in KERAS_ON_TORCH.items() if row.refused != rows[name].refused
            ]
            lines += [KERAS_TORCH, _rows(("refused on PyTorch", "part of the message"), also)]
    return "\n".join(lines)


def _on_ranks(row: Any) -> str:
    if not row.is_exact:
        return "differs: depends on the batch of each rank"
    return "same" + (f", except for {', '.join(row.loose)}: means of the ranks' means" if row.loose else "")


def strategies_page() -> str:
    """Every strategy with its options."""
    lines = [NOTE, "# Strategies and their options\n", "`search.options` of a space.yaml, or `options=` of `search`.\n"]
    lines += ["## Every strategy\n", _table({"properties": option_properties(Options) | REPRODUCIBLE}, {})]
    for name in STRATEGIES:
        own = option_properties(options_of(name))
        own = {key: value for key, value in own.items() if key not in Options.model_fields}
        lines.append(f"## `{name}`\n\n{_module_summary(strategy_class(name))}\n")
        lines.append(_table({"properties": own}, {}) if own else "No options of its own.\n")
    return "\n".join(lines)


MODELS = """\
A model either trains as with `keras.Model.fit` or a plain loop of PyTorch, or it is refused before the first step, with
status 2 and a message that says what to do. The tests train a small model of every kind in these tables and check that

- on one rank, losses, metrics and weights are the same as with `fit` or the plain loop, within 1e-4;
- on three ranks with a third of the batch size each, they are the same as on one rank, unless the table says otherwise;
- the model can be saved and loaded, and then predicts the same.

Losses and gradients of several ranks are means over all samples of a step, also if the ranks have different numbers of
samples. With a mask they are means over the unmasked entries, and with the reduction `mean_with_sample_weight` means
weighted by the sample weights. Batch normalisation uses the batch of each rank, dropout the random numbers of each
rank, and gradients that you define or change are those of the mean loss of each rank's batch.
"""

KERAS_TORCH = """\
### Keras with `KERAS_BACKEND=torch`

On PyTorch, the same models of Keras train as with `fit` on PyTorch, or are refused as above, except for the
following. `fit` on PyTorch trains neither the model with labels per pixel nor the one with a `GradientTape`.
"""

HYPERPARAMETERS = """\
## `space`: a hyperparameter

One line each: `NAME: {type: …, …}`. NAME is an argument of the model's function, or `$NAME` occurs in `training`.
"""

TRAINING = """\
## `training`

Every key of a [training.yaml](training.md). A value `$NAME` takes a hyperparameter; a key whose hyperparameter is
inactive is left out.
"""

EDITORS = """\
An unknown key is an error; the message names the most similar known key. Relative paths are relative to the folder of
the file, unless the table says otherwise.

Editors complete and check the file with [{schema}.schema.json](../schema/{schema}.schema.json). With the YAML extension
of Visual Studio Code, or any editor that runs yaml-language-server, write as the first line

```text
# yaml-language-server: $schema=PATH/TO/docs/schema/{schema}.schema.json
```
"""


def _command_section(program: str, command: Any) -> str:
    function = command.callback
    hints = typing.get_type_hints(function, include_extras=True)
    defaults = {name: one.default for name, one in inspect.signature(function).parameters.items()}
    for name in ("return", "context"):  # the latter is Typer's own
        hints.pop(name, None)
    rows = [_option_row(name, hint, defaults[name]) for name, hint in hints.items()]
    arguments = " ".join(row[0].strip("`") for row in rows if not row[0].startswith("`-"))
    name = command.name or function.__name__.replace("_", "-")
    text = inspect.cleandoc(command.help or function.__doc__)
    table = _rows(("", "type", "default", "meaning"), rows)
    return f"## `{' '.join(filter(None, (program, name, arguments)))}`\n\n{text}\n\n{table}"


def _option_row(name: str, hint: Any, default: Any) -> tuple[str, ...]:
    information = next(
        (one for one in getattr(hint, "__metadata__", ()) if isinstance(one, typer.models.ParameterInfo)), None
    )
    kind = hint.__origin__ if information else hint
    option = f"--{name.replace('_', '-')}"
    if isinstance(information, typer.models.ArgumentInfo):
        option = information.metavar or name.upper()
    elif information and (information.default not in (..., None) or information.param_decls):
        option = ", ".join(
            filter(lambda one: isinstance(one, str), (information.default, *(information.param_decls or ())))
        )
    shown = "required" if default is inspect.Parameter.empty else "" if default in (None, False) else f"`{default}`"
    return f"`{option or name}`", _type_name(kind), shown, (information.help if information else "") or ""


def _type_name(kind: Any) -> str:
    if get_origin(kind) is typing.Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) is tuple:
        return " ".join(map(_type_name, get_args(kind)))
    parts = [one for one in get_args(kind) if one is not type(None)] or [kind]
    if len(parts) == 1 and parts[0] is not kind:
        return _type_name(parts[0])
    names = {str: "text", int: "integer", float: "number", bool: "flag", Path: "path"}
    return " or ".join(names.get(one, getattr(one, "__name__", str(one))) for one in parts)


def _sections(schema: dict[str, Any], prefix: str, seen: set[str] | None = None) -> Iterator[str]:
    """A section for each object below `schema`, in the order of the keys."""
    seen = set() if seen is None else seen
    for key, entry in schema["properties"].items():
        for name in _references(entry):
            part = _definitions(schema)[name]
            if name in seen or "properties" not in part:
                continue
            seen.add(name)
            wanted = _wanted_name(part)
            title = f"{prefix}{key}: {{name: {wanted}}}" if wanted else f"{prefix}{key}"
            summary = part.get("description", "").split("\n\n")[0]
            yield f"## `{title}`\n\n{tidy(summary)}\n\n{_table(part, _definitions(schema))}"
            yield from _sections(part | {"$defs": _definitions(schema)}, f"{prefix}{key}.", seen)


def _wanted_name(section: dict[str, Any]) -> str:
    """The name that selects a section among several for the same key; empty if it is the only one."""
    name = section["properties"].get("name", {})
    if "name" in section.get("required", []) and "enum" in name:
        return " | ".join(name["enum"])
    return name.get("const", "") or ("file.py:function" if "pattern" in name else "")


def _definitions(schema: dict[str, Any]) -> dict[str, Any]:
    return schema.get("$defs", {})


def _references(entry: Any) -> list[str]:
    """The definitions that an entry refers to directly."""
    found = re.findall(r'"\$ref": "#/\$defs/(\w+)"', json.dumps(entry))
    return list(dict.fromkeys(found))


def _table(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = []
    for key, entry in schema["properties"].items():
        if key == "name" and "const" in entry:
            continue  # it is in the heading
        default = "required" if key in required else _shown_default(entry)
        rows.append((f"`{key}`", _kind(entry, definitions), default, tidy(entry.get("description", ""))))
    return _rows(("key", "type", "default", "meaning"), rows)


def _shown_default(entry: dict[str, Any]) -> str:
    if entry.get("default") is None:
        return ""
    default = entry["default"]
    if isinstance(default, dict):
        return f"`{default['name']}`" if "name" in default else "as below" if default else "`{}`"
    return f"`{json.dumps(default)}`"


def _kind(entry: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "const" in entry:
        return f"`{entry['const']}`"
    if "enum" in entry:
        return ", ".join(f"`{value}`" for value in entry["enum"])
    if "discriminator" in entry:
        return ", ".join(f"`{name}`" for name in entry["discriminator"]["mapping"])
    if alternatives := entry.get("anyOf", entry.get("oneOf")):
        kinds = [_kind(one, definitions) for one in alternatives if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in entry:
        return "section"
    names = {"string": "text", "object": "mapping", "array": "list", "boolean": "true or false"}
    return names.get(entry.get("type", "any"), entry.get("type", "any")) + _limits(entry)


def _limits(entry: dict[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {entry[name]:.10g}" for name, sign in signs.items() if name in entry]
    return f" {', '.join(limits)}" if limits else ""


def _rows(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n" if rows else ""


def _summary(cls: type) -> str:
    return tidy(inspect.cleandoc(cls.__doc__).split("\n\n")[0])


def _module_summary(cls: type) -> str:
    return tidy(inspect.cleandoc(inspect.getmodule(cls).__doc__).split("\n\n")[0])


def main() -> None:
    """Writes all of it."""
    for path, text in pages().items():
        target = DOCS / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        print(f"wrote {target}")


if __name__ == "__main__":
    main()
