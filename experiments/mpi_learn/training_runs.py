"""Runs trainings under `mpirun`; as a program it is what each rank runs."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from mpi_learn.job.launch import find_mpirun, launch_environment, launch_flags

HERE = Path(__file__).parent.resolve()


def run(contents: list[dict], n_ranks: int, work: Path, *, warm_up: bool = True) -> list[dict]:
    """Trains with each content of a training.yaml in turn, in one start of `n_ranks` ranks.

    With `warm_up` a training of one epoch goes first and is not reported: it has the cost of compiling.

    Returns:
        For each training its history, the seconds of its loop, and its samples per second.
    """
    asked, found = work / "asked.json", work / "found.json"
    asked.write_text(json.dumps({"contents": contents, "warm_up": warm_up}))
    program = find_mpirun()
    line = [program, *launch_flags(program), "-np", str(n_ranks), sys.executable, __file__, asked, found]
    environment = launch_environment() | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*map(str, line)], cwd=work, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return json.loads(found.read_text())


def spread(values: list[float], digits: int = 1) -> str:
    """Mean and sample standard deviation."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"


def main(asked: str, found: str) -> None:
    from mpi4py import MPI

    from mpi_learn import train

    results, given = [], json.loads(Path(asked).read_text())
    if given["warm_up"]:
        train(given["contents"][0] | {"epochs": 1}, MPI.COMM_WORLD)
    for content in given["contents"]:
        result = train(content, MPI.COMM_WORLD)
        results.append({name: getattr(result, name) for name in ("history", "seconds", "samples_per_second")})
    if MPI.COMM_WORLD.rank == 0:
        Path(found).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
