"""Reads a CSV file with `numpy.loadtxt` and as MPI Learn does, in turns, each time in its own process."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

N_COLUMNS, N_ROWS, N_COPIES, N_TURNS = 21, 3_000, 170, 3
NAMES = [f"c{i}" for i in range(N_COLUMNS)]


def with_numpy(path: Path) -> np.ndarray:
    table: np.ndarray = np.loadtxt(path, delimiter=",", quotechar='"', comments=None, skiprows=1, ndmin=2)
    return table[:, -1]


def with_mpi_learn(path: Path) -> np.ndarray:
    from mpi_learn.data.formats.source import open_source

    source = open_source(path)
    source.describe(NAMES)
    return np.asarray(source.read(NAMES, 0, N_ROWS * N_COPIES)["c20"])


READERS: dict[str, Callable[[Path], np.ndarray]] = {"numpy.loadtxt": with_numpy, "pyarrow.csv": with_mpi_learn}


def measure(name: str, path: Path) -> None:
    """Prints seconds, peak memory in MB, and a sum to compare."""
    begun = time.perf_counter()
    column = READERS[name](path)
    seconds = time.perf_counter() - begun
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, float(column.sum())]))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        values = np.random.default_rng(0).normal(size=(N_ROWS, N_COLUMNS))
        lines = "".join(",".join(f"{value:.6g}" for value in row) + "\n" for row in values)
        path.write_text(",".join(NAMES) + "\n" + N_COPIES * lines)
        print(f"{path.stat().st_size / 1e6:.0f} MB, {N_COLUMNS} columns, {N_ROWS * N_COPIES:,} rows, {N_TURNS} turns\n")
        found: dict[str, list[list[float]]] = {name: [] for name in READERS}
        for _ in range(N_TURNS):
            for name, runs in found.items():
                command = [sys.executable, __file__, name, str(path)]
                runs.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    print("| reader | seconds | peak memory of the process, MB |\n|---|---|---|")
    for name, runs in found.items():
        seconds, peak, _ = map(median, zip(*runs, strict=True))
        print(f"| `{name}` | {seconds:.2f} | {peak:,.0f} |")
    assert len({round(run[2], 6) for runs in found.values() for run in runs}) == 1, "the readers differ"


if __name__ == "__main__":
    measure(sys.argv[1], Path(sys.argv[2])) if sys.argv[1:] else main()
