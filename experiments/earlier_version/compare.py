"""Compares the speed of this checkout with that of an earlier one, in one run; writes ``results.json`` and the table.

    git worktree add --detach ../before e15f23d
    python experiments/earlier_version/compare.py --before ../before --data mnist.h5 [--only trainings searches]

Trainings of both versions take turns of one epoch, all other commands alternate, so that other load on the machine
affects both versions alike. Every ratio is the median of the ratios of single turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
sys.path += [str(ROOT / "experiments" / "common"), str(ROOT / "experiments" / "training_speed")]

from markdown_tables import markdown_table, write_end  # noqa: E402 - found by the path above
from turns import Program  # noqa: E402

from mpi_learn.job.launch import find_mpirun, launch_environment, launch_flags  # noqa: E402

N_SAMPLES = {"mlp": 38400, "cnn": 5120, "lstm": 7680}
KINDS = [(kind, ranks) for kind in ("ours-keras", "ours-torch") for ranks in (1, 2)]
VERSIONS = ("before", "now")

Measured = dict[str, dict[str, list[float]]]
"""The values of both versions in each turn, by name of the measurement."""


def trainings(folders: dict[str, Path], data: str, rounds: int) -> Measured:
    """Samples per second of each model, framework and number of ranks."""
    found: Measured = {}
    for model, n_samples in N_SAMPLES.items():
        with ExitStack() as stack:
            programs: dict[tuple[str, str], Program] = {}
            for kind, ranks in KINDS:
                for version in VERSIONS:
                    program = Program(
                        [kind, model, data, str(n_samples)],
                        ranks,
                        {"PYTHONPATH": str(folders[version])},
                        folders[version] / "experiments" / "training_speed",
                    )
                    stack.callback(program.stop)
                    program.wait_ready()  # one at a time, because each measures at its start which compiler is faster
                    programs[f"{model}, {kind.removeprefix('ours-')}, ranks: {ranks}", version] = program
            for turn in range(rounds):
                for program in list(programs.values())[:: -1 if turn % 2 else 1]:
                    program.run_epoch()
            for (name, version), program in programs.items():
                found.setdefault(name, {})[version] = program.end()["samples_per_second"]
        print(f"{model}: done", flush=True)
    return found


def searches(folders: dict[str, Path], rounds: int) -> Measured:
    """Trials per second on 5 ranks without work, and the seconds of ``--help`` and of ``results`` on 10,000 trials."""

    def speed(version: str) -> float:
        with searched(folders[version], 5, "nothing", 10_000) as (_, out):
            return float(next(line for line in out.splitlines() if line.startswith("trials/s")).split()[1])

    def seconds(version: str, *arguments: str) -> float:
        began = time.perf_counter()
        run_program(folders[version], *arguments)
        return time.perf_counter() - began

    found = {
        "trials/s, 5 ranks, SQLite": alternated(speed, rounds),
        "`mpi-opt --help`, s": alternated(lambda version: seconds(version, "--help"), 2 * rounds),
    }
    with ExitStack() as stack:
        stores = {}
        for version in VERSIONS:
            folder, _ = stack.enter_context(searched(folders[version], 5, "nothing", 10_000))
            stores[version] = f"sqlite:///{folder}/speed.db"
        found["`mpi-opt results`, 10,000 trials, s"] = alternated(
            lambda version: seconds(version, "results", "--store", stores[version]), 2 * rounds
        )
    return found


def busy_blocks(folders: dict[str, Path], rounds: int) -> Measured:
    """The part of the time in which 255 blocks of one rank have a trial; each trial takes a second."""

    def busy(version: str) -> float:
        with searched(folders[version], 256, "one_second", rounds * 255) as (folder, _):
            query = (
                "SELECT sum(duration_s), (julianday(max(finished_at)) - julianday(min(started_at))) * 86400 "
                "FROM trials WHERE state = 'complete'"
            )
            command = ["results", "--store", f"sqlite:///{folder}/speed.db", "--sql", query, "--format", "csv"]
            out = run_program(folders[version], *command)
            busy_s, span_s = map(float, out.splitlines()[-1].split(","))
            return busy_s / (span_s * 255)

    return {"busy blocks, 256 ranks": alternated(busy, 1)}


def alternated(measure: Callable[[str], float], rounds: int) -> dict[str, list[float]]:
    """The values of `measure` for both versions in turns. Successive rounds begin with different versions."""
    found: dict[str, list[float]] = {version: [] for version in VERSIONS}
    for number in range(rounds):
        for version in VERSIONS if number % 2 else reversed(VERSIONS):
            found[version].append(measure(version))
    return found


@contextmanager
def searched(checkout: Path, n: int, objective: str, trials: int) -> Iterator[tuple[Path, str]]:
    """Runs a search with one version of the program; returns its folder and its output."""
    scripts = checkout / "experiments" / "dispatch"
    space = {name: {"type": "real", "low": 0, "high": 1} for name in "abcdef"}
    content = {
        "study": "speed",
        "store": "sqlite:///speed.db",
        "objective": f"{scripts / 'objectives.py'}:{objective}",
        "space": space,
        "search": {"strategy": "random", "trials": trials, "seed": 1},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "space.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        mpirun = find_mpirun()
        command = [mpirun, *launch_flags(mpirun), "-np", str(n), sys.executable, str(scripts / "timed.py")]
        done = subprocess.run(
            [*command, "search", "space.yaml"],
            cwd=folder,
            env=environment_of(checkout),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        yield folder, done.stdout


def run_program(checkout: Path, *arguments: str) -> str:
    """The output of ``mpi-opt`` of a version."""
    command = [sys.executable, "-m", "mpi_opt", *arguments]  # imports the version in the working directory
    return subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True).stdout


def environment_of(checkout: Path) -> dict[str, str]:
    """Environment variables that make a process and its ranks import this version."""
    return launch_environment() | {"PYTHONPATH": str(checkout)}


def table(found: Measured) -> str:
    """A row for each measurement: medians of both versions, and the median ratio of the turns with its quartiles."""
    rows = []
    for name, figures in found.items():
        before, now = figures["before"], figures["now"]
        ratios = sorted(b / a for a, b in zip(before, now, strict=True))
        quarter = len(ratios) // 4
        spread = f" ({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})" if len(ratios) >= 4 else ""
        medians = [f"{statistics.median(values):,.4g}" for values in (before, now)]
        rows.append([name, len(ratios), *medians, f"{statistics.median(ratios):.3f}{spread}"])
    return markdown_table(["measured", "turns", "before", "now", "now / before"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="folder of the earlier checkout")
    parser.add_argument("--data", help="file that `mpi-learn prepare mnist --to FILE` wrote")
    parser.add_argument("--only", nargs="*", default=["trainings", "searches", "busy"])
    parser.add_argument("--rounds", type=int, default=15, help="epochs of each training; a third as many searches")
    parser.add_argument("--print", action="store_true", help="measure nothing; write the table")
    options = parser.parse_args()
    file = HERE / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {"measured": {}}
    if not options.print:
        folders = {"before": options.before.resolve(), "now": ROOT}
        measurements: dict[str, Callable[[], Measured]] = {
            "trainings": lambda: trainings(folders, str(Path(options.data).resolve()), options.rounds),
            "searches": lambda: searches(folders, max(options.rounds // 3, 1)),
            "busy": lambda: busy_blocks(folders, 20),
        }
        results["machine"] = f"{os.cpu_count()} cores, Python {platform.python_version()}"
        for name in options.only:
            results["measured"] |= measurements[name]()
            file.write_text(json.dumps(results, indent=1) + "\n")
    shown = table(results["measured"])
    print(shown)
    write_end(HERE / "README.md", f"{shown}\n\nMachine: {results['machine']}.")


if __name__ == "__main__":
    main()
