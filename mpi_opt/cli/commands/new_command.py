"""The command ``new``: writes a commented ``NAME.yaml`` and ``NAME.py``, which run without changes."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import typer

from mpi_opt.errors import ConfigurationError

Kind = Literal["training", "function"]


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the new files in the current directory, without suffix.")
    ],
    kind: Annotated[
        Kind, typer.Option("--kind", help="training: a Keras model and its data; function: any Python function.")
    ] = "training",
) -> None:
    """Write the commented files of a new study, which run without changes: NAME.yaml, NAME.py, and its data NAME.h5.

    NAME.h5 is written for `--kind training` only. Existing files are not overwritten.
    """
    for path in write_template(name, kind, Path()):
        print(f"wrote {path}")
    print(f"now run\n  mpi-opt search {name}.yaml")


def write_template(name: str, kind: Kind, folder: Path) -> list[Path]:
    """Writes the files of a new study into `folder`; returns their paths. Writes nothing if one of the files exists.

    Raises:
        ConfigurationError: `name` has other characters than letters, digits, _ and -, or begins with a digit or -, or
            one of the files exists.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
        cure = "mpi-opt new jets writes jets.yaml and jets.py"
        raise ConfigurationError(
            f"expected a name that starts with a letter or _ and has only letters, digits, _ and -, found {name!r}",
            where="NAME",
            cure=cure,
        )
    templates = {folder / f"{name}.yaml": f"{kind}.yaml", folder / f"{name}.py": f"{kind}.py.txt"}
    data = [folder / f"{name}.h5"] if kind == "training" else []
    for path in (*templates, *data):
        if path.exists():
            raise ConfigurationError("the file exists already", where=str(path), cure="choose another name")
    for path, template in templates.items():
        text = resources.files("mpi_opt.cli").joinpath("templates", template).read_text(encoding="utf-8")
        path.write_text(text.replace("NAME", name), encoding="utf-8")
    for path in data:
        from mpi_learn.known_data import prepare

        prepare("digits", path)
    return [*templates, *data]
