"""Real trainings on 9 to 17 ranks, of which one to three are killed at random moments of each run.

Run it in the project's folder: python experiments/chaos/storm.py [--runs 50] [--results storm.json]
Runs that are already in the results file are not repeated. Prints the rows of this experiment in README.md.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from launched import Hung, Launched, end_in_order, query

from mpi_learn.known_data import prepare

HERE = Path(__file__).parent
TRIALS, EPOCHS, RETRIES = 12, 4, 1
LIMIT_S = 240.0

SETTINGS = ((9, 2, 1), (9, 2, 1), (9, 4, 1), (10, 3, 3), (13, 2, 1), (17, 4, 1))
"""(ranks, ranks per block, folds), drawn with equal probability.

All blocks have the same size, so that the results of runs can be compared.
"""


@dataclass(frozen=True)
class Kill:
    """A rank that is killed, and the time of the kill.

    Attributes:
        rank: The rank.
        after: Number of results in the store at which the delay starts; -1: as soon as the ranks have started.
        delay_s: Seconds between this moment and the kill.
    """

    rank: int
    after: int
    delay_s: float


def space(data: Path, size: int, folds: int) -> dict[str, Any]:
    """The ``space.yaml``."""
    training = {
        "model": f"{HERE / 'network.py'}:build",
        "data": {"train": [str(data)], "features": "X", "labels": "y", "validation_fraction": 0.2},
        "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"],
        "optimizer": {"name": "adam", "learning_rate": "$learning_rate"},
        "batch_size": 32,
        "epochs": EPOCHS,
    }
    return {
        "study": "storm",
        "store": "sqlite:///storm.db",
        "figure_of_merit": "val_loss",
        "space": {
            "units": {"type": "integer", "low": 16, "high": 128},
            "dropout": {"type": "real", "low": 0.0, "high": 0.5},
            "learning_rate": {"type": "real", "low": 1e-3, "high": 1e-2, "prior": "log-uniform"},
        },
        "search": {"strategy": "random", "trials": TRIALS, "seed": 5},
        "blocks": {"size": size},
        "folds": folds,
        "trial": {"retries": RETRIES},
        "training": training,
    }


def figures(database: Path) -> dict[str, float]:
    """The figure of merit of each complete trial."""
    rows = query(database, "SELECT number, figure_of_merit FROM trials WHERE state = 'complete'")
    return {str(number): value for number, value in rows}


def undisturbed(data: Path, size: int, folds: int) -> dict[str, float]:
    """The figures of merit of a search on one block in which no rank is killed."""
    with tempfile.TemporaryDirectory() as name, Launched(Path(name), 1 + size, space(data, size, folds)) as search:
        status = search.wait(LIMIT_S)
        found = figures(Path(name) / "storm.db")
    assert status == 0, status
    assert len(found) == TRIALS, found
    return found


def drawn(seed: int) -> tuple[tuple[int, int, int], list[Kill]]:
    """The setting of a run and its kills; both depend only on the seed."""
    draw = random.Random(seed)
    setting = draw.choice(SETTINGS)
    victims = draw.sample(range(1, setting[0]), draw.randint(1, 3))
    kills = [Kill(rank, draw.randint(-1, TRIALS), draw.choice((0.0, draw.uniform(0, 1.5)))) for rank in victims]
    return setting, sorted(kills, key=lambda kill: (kill.after, kill.delay_s))


def carry_out(search: Launched, database: Path, kills: list[Kill]) -> dict[int, float]:
    """Kills as planned; returns the time of each kill in seconds since 1970. Ranks that had ended are left out."""
    killed = {}
    for kill in kills:
        while search.is_running and _n_results(search, database) < kill.after:
            if time.time() - search.began > LIMIT_S:
                return killed
            time.sleep(0.02)
        time.sleep(kill.delay_s)
        at = search.kill(kill.rank)
        if at is not None:
            killed[kill.rank] = at
    return killed


def _n_results(search: Launched, database: Path) -> int:
    """The number of results in the store; -1 if there are none but all ranks have started; less before that."""
    rows = query(database, "SELECT count(*) FROM trials WHERE state IN ('complete', 'failed', 'pruned')")
    if rows and rows[0][0]:
        return rows[0][0]
    return -1 if (search.folder / "storm.logs").exists() else -2


def one_run(
    data: Path, setting: tuple[int, int, int], kills: list[Kill], folder: Path, reference: dict[str, float]
) -> dict[str, Any]:
    """Runs one search with its kills; returns problems and durations."""
    (n, size, folds), problems = setting, []
    with Launched(folder, n, space(data, size, folds)) as search:
        killed = carry_out(search, folder / "storm.db", kills)
        try:
            status = search.wait(LIMIT_S)
            if status:
                problems.append(f"exit status {status}")
        except Hung as error:
            problems.append("hung")
            (folder / "stacks.txt").write_text(str(error))
            print(error, (folder / "out.txt").read_text()[-3000:], sep="\n")
        seconds = time.time() - search.began
    database = folder / "storm.db"
    return {
        "setting": [n, size, folds],
        "kills": [[kill.rank, kill.after, kill.delay_s] for kill in kills if kill.rank in killed],
        "seconds": seconds,
        "problems": problems
        + found_wrong(database, reference, size, folds, n - 1 - len(lost_at(database)))
        + lost_without_reason(folder, killed),
        "n_failed": query(database, "SELECT count(*) FROM trials WHERE state = 'failed'")[0][0],
        "n_ended": query(database, "SELECT count(*) FROM events WHERE detail LIKE '%did not leave its block'")[0][0],
        "noticed_s": noticed_s(database, killed),
        "assigned_s": assigned_s(database),
    }


def found_wrong(database: Path, reference: dict[str, float], size: int, folds: int, n_left: int) -> list[str]:
    """Problems of the trials in the store.

    A block with fewer ranks trains with other batches, to another figure of merit. This is no problem if fewer than
    `size` ranks are left at the end: Open MPI can crash a rank that makes a communicator while another one dies.
    """
    problems = []
    numbers = sorted(number for (number,) in query(database, "SELECT number FROM trials"))
    if numbers != list(range(TRIALS)):
        problems.append(f"trials {numbers}")
    odd = query(
        database,
        "SELECT number, state FROM trials WHERE NOT (state = 'complete' AND figure_of_merit IS NOT NULL"
        f" OR state = 'failed' AND error LIKE '%attempt {RETRIES + 1} was the last%')",
    )
    problems += [f"trial {number} is {state}" for number, state in odd]
    trained = query(
        database,
        "SELECT number, figure_of_merit, ranks FROM trials JOIN attempts"
        " ON trial_id = trials.id AND attempt = trials.attempts WHERE state = 'complete'",
    )
    for number, value, ranks in trained:
        if value != reference[str(number)] and (n_left >= size or len(ranks.split(",")) >= size):
            problems.append(f"trial {number}: {value!r} on ranks {ranks}, undisturbed {reference[str(number)]!r}")
    parts = query(
        database,
        "SELECT number, (SELECT count(*) FROM folds WHERE trial_id = trials.id),"
        " (SELECT count(*) FROM metrics WHERE trial_id = trials.id AND name = 'val_loss') FROM trials"
        " WHERE state = 'complete'",
    )
    problems += [
        f"trial {number}: {f} folds, {m} epochs" for number, f, m in parts if (f, m) != (folds, folds * EPOCHS)
    ]
    return problems


def lost_without_reason(folder: Path, killed: Container[int]) -> list[str]:
    """Ranks that were lost, but neither killed nor ended by a crash of the MPI library."""
    problems = []
    for rank in lost_at(folder / "storm.db"):
        log = folder / "storm.logs" / f"rank-{rank:04}.log"
        if rank not in killed and "Process received signal" not in log.read_text():  # written by Open MPI
            problems.append(f"rank {rank} was lost without a reason")
    return problems


def noticed_s(database: Path, killed: dict[int, float]) -> list[float]:
    """Seconds from the kill of each rank to the event of its loss in the store."""
    lost = lost_at(database)
    return [lost[rank] - at for rank, at in killed.items() if rank in lost]


def lost_at(database: Path) -> dict[int, float]:
    """The ranks that the search has lost, killed or not, and the times of these events in seconds since 1970."""
    rows = query(database, "SELECT at, detail FROM events WHERE kind = 'rank_lost' AND detail LIKE 'rank %,%'")
    return {int(detail.split(",")[0].removeprefix("rank ")): _seconds(at) for at, detail in rows}


def assigned_s(database: Path) -> list[float]:
    """Seconds that each lost trial waited for its next attempt."""
    rows = query(
        database,
        "SELECT a.finished_at, b.started_at FROM attempts a JOIN attempts b ON a.trial_id = b.trial_id"
        " AND b.attempt = a.attempt + 1 WHERE a.outcome = 'lost'",
    )
    return [_seconds(started) - _seconds(lost) for lost, started in rows]


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def summary(runs: list[dict[str, Any]]) -> dict[str, str]:
    """The rows for all runs together."""
    hit = [run for run in runs if run["kills"]]  # in the others the search had ended before the kill
    lines = {"passed runs, of those in which ranks died": f"{sum(not run['problems'] for run in hit)} of {len(hit)}"}
    lines["killed ranks"] = str(sum(len(run["kills"]) for run in runs))
    lines["trials run again; failed after their last attempt"] = (
        f"{sum(len(run['assigned_s']) for run in runs)}; {sum(run['n_failed'] for run in runs)}"
    )
    lines["surviving ranks that could not leave a broken block"] = str(sum(run["n_ended"] for run in runs))
    intervals = {"from death to detection": "noticed_s", "from detection to the next start of the trial": "assigned_s"}
    for interval, key in intervals.items():
        values = [value for run in runs for value in run[key]]
        if len(values) > 1:
            lines[f"time {interval}: median, 95 %, longest"] = quantiles(values)
    return lines


def quantiles(values: list[float]) -> str:
    """The median, the 95 % quantile and the longest, as text."""
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return f"{cuts[9]:.2f} s, {cuts[18]:.2f} s, {max(values):.2f} s"


def main() -> None:
    """Runs what is not yet in the results file, and prints the rows."""
    end_in_order()
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--results", type=Path, default=Path("storm.json"))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "storm")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    data = options.folder / "digits.h5"
    if not data.exists():
        prepare("digits", data)
    known = json.loads(options.results.read_text()) if options.results.exists() else {"undisturbed": {}, "runs": {}}
    for seed in range(options.runs):
        setting, kills = drawn(seed)
        _, size, folds = setting
        name = f"{size}/{folds}"
        if name not in known["undisturbed"]:
            known["undisturbed"][name] = undisturbed(data, size, folds)
        if str(seed) not in known["runs"]:
            folder = options.folder / f"{seed}-{time.time():.0f}"
            known["runs"][str(seed)] = one_run(data, setting, kills, folder, known["undisturbed"][name])
            print(seed, known["runs"][str(seed)], flush=True)
        options.results.write_text(json.dumps(known, indent=1))
    for what, found in summary(list(known["runs"].values())).items():
        print(f"| {what} | {found} |")


if __name__ == "__main__":
    main()
