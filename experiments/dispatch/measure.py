"""Measures how busy the coordinator keeps the blocks, its trials per second, and the processor time of waiting ranks.

Run it on an otherwise quiet machine, in the project's folder: python experiments/dispatch/measure.py [--ranks 256]
Prints the table of README.md.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mpi_learn.job.launch import find_mpirun, launch_environment, launch_flags
from mpi_learn.settings.yaml_file import dumped

HERE = Path(__file__).parent
SPACE = {
    "a": {"type": "real", "low": 0, "high": 1},
    "b": {"type": "real", "low": 1e-4, "high": 1, "prior": "log-uniform"},
    "c": {"type": "integer", "low": 1, "high": 100},
    "d": {"type": "categorical", "categories": ["x", "y"]},
    "e": {"type": "real", "low": 0, "high": 1},
    "f": {"type": "integer", "low": 0, "high": 5},
}


def start(folder: Path, n: int, objective: str, trials: int, store: str) -> subprocess.Popen:
    """Starts a search on `n` ranks in `folder`."""
    content = {
        "study": "dispatch",
        "store": store,
        "objective": f"{HERE / 'objectives.py'}:{objective}",
        "space": SPACE,
        "search": {"strategy": "random", "trials": trials, "seed": 1},
    }
    (folder / "space.yaml").write_text(dumped(content))
    mpirun = find_mpirun()
    script = Path(__file__).with_name("timed.py")
    command = [mpirun, *launch_flags(mpirun), "-np", str(n), sys.executable, str(script), "search", "space.yaml"]
    return subprocess.Popen(command, cwd=folder, env=launch_environment(), stdout=subprocess.PIPE, text=True)


def trials_per_second(n: int, trials: int, store: str) -> float:
    """The speed of a search whose trials do nothing, on `n` ranks."""
    with tempfile.TemporaryDirectory() as folder:
        out, _ = start(Path(folder), n, "nothing", trials, store).communicate(timeout=600)
    return float(next(line for line in out.splitlines() if line.startswith("trials/s")).split()[1])


def busy(n: int, rounds: int) -> float:
    """The fraction of the time between the first start and the last end in which the blocks had a trial."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start(folder, n, "one_second", rounds * (n - 1), "sqlite:///dispatch.db").communicate(timeout=900)
        connection = sqlite3.connect(folder / "dispatch.db")
        row = connection.execute(
            "SELECT count(*), sum(duration_s), (julianday(max(finished_at)) - julianday(min(started_at))) * 86400 "
            "FROM trials WHERE state = 'complete'"
        ).fetchone()
        connection.close()
    count, busy_s, span_s = row
    assert count == rounds * (n - 1)
    return busy_s / (span_s * (n - 1))


def idle_cores(n: int) -> float:
    """Cores that all waiting ranks use together while one block trains."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = start(folder, n, "one_long_trial", n - 1, "sqlite:///dispatch.db")
        while not _has_ended(folder, n - 2):
            time.sleep(0.5)
        time.sleep(3)
        ranks = _ranks(process.pid)
        before, began = sum(map(_cpu_s, ranks)), time.monotonic()
        time.sleep(15)
        used = (sum(map(_cpu_s, ranks)) - before) / (time.monotonic() - began)
        process.communicate(timeout=300)
    return used


def _has_ended(folder: Path, count: int) -> bool:
    try:
        connection = sqlite3.connect(f"file:{folder / 'dispatch.db'}?mode=ro", uri=True)
        try:
            return connection.execute("SELECT count(*) FROM trials WHERE state = 'complete'").fetchone()[0] >= count
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return False


def _ranks(launcher: int) -> list[int]:
    """The process ids of all ranks but the coordinator's, which is the launcher's first child."""
    found = subprocess.run(["pgrep", "-P", str(launcher)], capture_output=True, text=True, check=True).stdout.split()
    return sorted(map(int, found))[1:]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    n, rounds = options.ranks, options.rounds
    print("| quantity | measured | target |\n|---|---|---|")
    memory = [trials_per_second(5, 30_000, "sqlite://") for _ in range(3)]
    print(
        f"| trials/s, 5 ranks, store in memory (best of 3; all: {_all(memory)}) | {max(memory):,.0f} | ≥ 5,000 |",
        flush=True,
    )
    disk = [trials_per_second(5, 15_000, "sqlite:///dispatch.db") for _ in range(3)]
    print(
        f"| trials/s, 5 ranks, SQLite on disk (best of 3; all: {_all(disk)}) | {max(disk):,.0f} | ≥ 1,500 |", flush=True
    )
    print(f"| blocks busy, {n} ranks, trials of 1 s, {rounds} each | {busy(n, rounds):.1%} | ≥ 95 % |", flush=True)
    print(f"| cores used by {n - 2} waiting ranks together | {idle_cores(n):.2f} | < 0.30 |", flush=True)


def _all(values: list[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in values)


if __name__ == "__main__":
    main()
