"""Trains every row of a framework's table on all ranks; on one rank also by the framework itself.

``python -m tests.mpi_learn.conformance.run TABLE FOLDER [ROW …]``; rank 0 writes ``TABLE-RANKS.json``. The tables are
``keras``, ``torch``, and with ``KERAS_BACKEND=torch`` also ``keras_torch``.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.errors import MPILearnError, TrainingError, UserError
from mpi_learn.settings.user_code import load_function
from tests.mpi_learn.conformance.rows import HERE, N_VALIDATION, N, Row, arrays, configuration, written


def main(table: str, folder: Path, *names: str) -> None:
    world, framework = MPI.COMM_WORLD, table.partition("_")[0]
    rows: dict[str, Row] = importlib.import_module(f"tests.mpi_learn.conformance.{table}_rows").ROWS
    if world.rank == 0 and not (folder / "train.h5").exists():
        written(folder)
    world.Barrier()
    found = {}
    for name, row in rows.items():
        if (names and name not in names) or (row.refused and row.ranks != world.size):
            continue
        begun = time.perf_counter()
        found[name] = trained(row, framework, folder, world)
        found[name]["seconds"] = time.perf_counter() - begun
    if world.rank == 0:
        (folder / f"{table}-{world.size}.json").write_text(json.dumps(found))


def trained(row: Row, framework: str, folder: Path, world: MPI.Comm) -> dict[str, Any]:
    """What the training gave; on one rank also what the framework itself gives, and the model read back."""
    try:
        result = train(configuration(row, framework, folder, world.size), world)
    except TrainingError as error:
        return {"failed": f"{error}"}
    except UserError as error:
        return {"refused": f"{error}"}
    oracle = importlib.import_module(f"tests.mpi_learn.conformance.{framework}_oracle")
    found = {"history": result.history, "weights": oracle.weights(result.model)}
    if world.size > 1 or row.refused:
        return found
    try:
        with tempfile.TemporaryDirectory() as place:
            found["saved"], found["same"] = saved(row, framework, oracle, result, Path(place))
        module = sys.modules[load_function(f"{HERE / f'{framework}_models.py'}:{row.model}").__module__]
        found["expected"] = oracle.by_the_framework(row, module, arrays(N, 0), arrays(N_VALIDATION, 1))
    except MPILearnError as error:
        found["failed"] = f"{error}"
    return found


def saved(row: Row, framework: str, oracle: Any, result: Any, place: Path) -> tuple[str, bool]:
    """The suffix of the saved model, and whether it predicts the same when it is loaded."""
    validation = arrays(N_VALIDATION, 1)
    try:
        file = result.save_model(place / "model")
    except Exception:  # noqa: BLE001 - whatever the framework raises: the weights are saved instead
        file, _ = result.save_weights(place / "model")
    build = load_function(f"{HERE / f'{framework}_models.py'}:{row.model}")
    loaded = oracle.loaded(file, lambda: build(**row.parameters), row.inputs(validation))
    pair = zip(oracle.predicted(result.model, row.inputs(validation)),
               oracle.predicted(loaded, row.inputs(validation)), strict=True)  # fmt: skip
    return file.name.removeprefix("model"), all(np.allclose(one, other, atol=1e-5) for one, other in pair)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
