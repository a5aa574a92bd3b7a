"""Reads a CSV file with `numpy.loadtxt` and as MPI Learn does, in turns, each time in its own process."""

from __future__ import annotations

import csv
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
    """`numpy.loadtxt`; a table with an empty cell is parsed in Python, since NumPy refuses it."""
    try:
        table = np.loadtxt(path, delimiter=",", quotechar='"', comments=None, skiprows=1, ndmin=2)
        return [column.copy() for column in table.T][-1]
    except ValueError:
        with path.open(encoding="utf-8", newline="") as lines:
            columns = zip(*list(csv.reader(lines))[1:], strict=True)
            return [np.array([float(cell) if cell else np.nan for cell in column]) for column in columns][-1]


def with_mpi_learn(path: Path) -> np.ndarray:
    from mpi_learn.data.formats.open_source import open_source

    source = open_source(path)
    source.describe(NAMES)
    return np.asarray(source.read(NAMES, 0, 10**9)[NAMES[-1]])


READERS: dict[str, Callable[[Path], np.ndarray]] = {"numpy.loadtxt": with_numpy, "pyarrow.csv": with_mpi_learn}


def measure(name: str, path: Path) -> None:
    """Prints CPU seconds, peak memory in MB, and a sum to compare."""
    began = time.process_time()
    column = READERS[name](path)
    seconds = time.process_time() - began
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, float(column.sum())]))


def main() -> None:
    values = np.random.default_rng(0).normal(size=(N_ROWS, N_COLUMNS))
    lines = "".join(",".join(f"{value:.6g}" for value in row) + "\n" for row in values)
    text = ",".join(NAMES) + "\n" + N_COPIES * lines
    print(f"{len(text) / 1e6:.0f} MB, {N_COLUMNS} columns, {N_ROWS * N_COPIES:,} rows, {N_TURNS} turns\n")
    print("| table | reader | CPU seconds | peak memory of the process, MB |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        for table, last in (("numbers", ""), ("one empty cell", "," + ",".join("1" * (N_COLUMNS - 1)) + "\n")):
            path.write_text(text + last)
            compare(table, path)


def compare(table: str, path: Path) -> None:
    """Runs the readers in turns and prints a row for each."""
    found: dict[str, list[list[float]]] = {name: [] for name in READERS}
    for _ in range(N_TURNS):
        for name, runs in found.items():
            command = [sys.executable, __file__, name, str(path)]
            runs.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    for name, runs in found.items():
        seconds, peak, _ = map(median, zip(*runs, strict=True))
        print(f"| {table} | `{name}` | {seconds:.1f} | {peak:,.0f} |")
    assert len({round(run[2], 6) for runs in found.values() for run in runs}) == 1, "the readers differ"


if __name__ == "__main__":
    measure(sys.argv[1], Path(sys.argv[2])) if sys.argv[1:] else main()
