"""The reference pages and JSON Schemas agree with the code."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from mpi_learn.settings.yaml_file import parsed
from mpi_opt.configuration.read_study import read_study
from mpi_opt.errors import ConfigurationError
from tests.docs.pages import DOCS, ROOT

STALE = "run `python docs/generate.py` and commit what it writes"


@pytest.fixture(scope="module")
def generate():
    sys.path.insert(0, str(DOCS))
    try:
        yield importlib.import_module("generate")
    finally:
        sys.path.remove(str(DOCS))


def test_reference_and_schemas_match_the_code(generate):
    for path, text in generate.pages().items():
        assert (DOCS / path).read_text(encoding="utf-8") == text, f"docs/{path} is stale: {STALE}"


def test_every_command_has_a_section(generate):
    page = (DOCS / "reference/commands.md").read_text()
    for command in generate.mpi_opt_app().registered_commands:
        name = command.name or command.callback.__name__
        assert f"## `mpi-opt {name}" in page


@pytest.mark.parametrize("page", ["space", "training", "strategies"])
def test_every_key_has_a_meaning(page):
    rows = [line for line in (DOCS / f"reference/{page}.md").read_text().splitlines() if line.startswith("| `")]
    without = [row for row in rows if not row.rstrip("| ").split("|")[-1].strip() or row.rstrip().endswith("|  |")]
    assert len(rows) > 10
    assert not without


SPACES = sorted((ROOT / "searchspaces").glob("*.yaml"))


@pytest.mark.parametrize("path", SPACES, ids=[path.name for path in SPACES])
def test_schema_accepts_the_search_spaces_of_the_project(path):
    _validate(parsed(path.read_text()))


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        (None, "direktion", "minimize"),
        (None, "direction", "up"),
        ("search", "trials", 0),
        ("space", "x", {"type": "real", "low": 0}),
        ("training", "optimizer", {"name": "adam", "momentum": 0.9}),
        ("training", "epochs", "many"),
    ],
)
def test_schema_and_program_refuse_the_same_files(section, key, value):
    import jsonschema

    content = parsed((ROOT / "searchspaces/digits.yaml").read_text())
    (content if section is None else content[section])[key] = value
    with pytest.raises(jsonschema.ValidationError):
        _validate(content)
    if section != "training":  # its values are checked when they are filled in
        with pytest.raises(ConfigurationError):
            read_study(content)


def _validate(content) -> None:
    import jsonschema

    jsonschema.validate(content, json.loads((DOCS / "schema/space.schema.json").read_text()))
