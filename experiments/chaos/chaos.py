"""Searches that must finish unattended although everything around them fails.

Run it in the project's folder: python experiments/chaos/chaos.py [--minutes 30] [--seed 0] [--only "rank 0 killed"]
Each round is a search with ``--restarts``. Faults are drawn at random until it has ended. A round passes if the search
ends with status 0, and each trial is complete exactly once and has the right figure of merit. Rounds with trainings,
whose checkpoints are damaged, need PyTorch. The full disk needs root. Prints a table, and ends with status 1 if a round
has failed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from launched import Hung, Launched, end_in_order, query

HERE = Path(__file__).parent
N_RANKS, RESTARTS = 5, 1000
SILENCE_S = 12.0
"""A rank, also rank 0, is given up after this time without a sign of life. The machine may be busy."""
START_S = 45.0
"""All ranks must start within this time: a rank that is frozen meanwhile is not noticed otherwise."""
LIMIT_S = 600.0
"""A round that takes longer has failed."""
FULL_MB = 24
STUDY = "chaos"


@dataclass
class Round:
    """One search.

    Attributes:
        folder: Its working directory.
        trials: The number of its trials.
        draw: The random numbers of the faults.
        faults: What was done, and when, in seconds since 1970.
    """

    folder: Path
    search: Launched
    trials: int
    draw: random.Random
    faults: list[tuple[str, float]] = field(default_factory=list)

    @property
    def database(self) -> Path:
        """The store."""
        return self.folder / f"{STUDY}.db"

    def rank(self, *, zero: bool = False) -> int | None:
        """The process id of rank 0, or of another rank; None if it does not run."""
        ranks = self.search.ranks()
        others = [pid for rank, pid in sorted(ranks.items()) if rank > 0]
        return ranks.get(0) if zero else self.draw.choice(others) if others else None


def _signal(pid: int | None, number: signal.Signals) -> bool:
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, number)
            return True
    return False


def _stopped(one: Round, pid: int | None, seconds: float) -> bool:
    """Stops a process for this time."""
    if not _signal(pid, signal.SIGSTOP):
        return False
    time.sleep(seconds)
    _signal(pid, signal.SIGCONT)
    return True


def slow_rank(one: Round) -> bool:
    """A rank gets a tenth of its time for some seconds."""
    pid = one.rank()
    return pid is not None and all(_stopped(one, pid, 0.45) and time.sleep(0.05) is None for _ in range(10))


def locked_store(one: Round) -> bool:
    """Another process holds the write lock of the store."""
    if not one.database.exists():
        return False
    with closing(sqlite3.connect(one.database, timeout=10, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        time.sleep(one.draw.uniform(2, 6))
        connection.execute("ROLLBACK")
    return True


def full_disk(one: Round) -> bool:
    """The file system of the store has no space left."""
    if not one.folder.is_mount():
        return False
    ballast = one.folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    time.sleep(one.draw.uniform(2, 5))
    ballast.unlink(missing_ok=True)
    return True


def jumping_clock(one: Round) -> bool:
    """The clock of rank 0 jumps by an hour, and back."""
    (one.folder / "clock").write_text(str(one.draw.choice((-3600, 3600))))
    time.sleep(one.draw.uniform(1, 4))
    (one.folder / "clock").unlink()
    return True


def damaged_checkpoint(one: Round) -> bool:
    """The newest checkpoint gets other bytes in its middle, and rank 0 is killed: the trial continues from it."""
    found = sorted(one.folder.glob("*.checkpoints/**/checkpoint.npz"), key=lambda path: path.stat().st_mtime)
    if not found:
        return False
    with suppress(OSError), found[-1].open("r+b") as file:
        file.seek(found[-1].stat().st_size // 2)
        file.write(os.urandom(200))
    return _signal(one.rank(zero=True), signal.SIGKILL)


FAULTS: dict[str, Callable[[Round], bool]] = {
    "rank killed": lambda one: _signal(one.rank(), signal.SIGKILL),
    "rank 0 killed": lambda one: _signal(one.rank(zero=True), signal.SIGKILL),
    "mpirun killed": lambda one: _signal(one.search.mpirun, signal.SIGKILL),
    "all ranks killed": lambda one: all(
        [_signal(pid, signal.SIGKILL) for pid in one.search.ranks().values()] or [False]
    ),
    "rank frozen": lambda one: _signal(one.rank(), signal.SIGSTOP),
    "rank frozen for 3 s": lambda one: _stopped(one, one.rank(), 3),
    "rank frozen until it was given up": lambda one: _stopped(one, one.rank(), SILENCE_S + 6),
    "rank 0 frozen": lambda one: _signal(one.rank(zero=True), signal.SIGSTOP),
    "rank 0 frozen for 3 s": lambda one: _stopped(one, one.rank(zero=True), 3),
    "slow rank": slow_rank,
    "store locked": locked_store,
    "disk full": full_disk,
    "clock jumps": jumping_clock,
    "checkpoint damaged": damaged_checkpoint,
}
"""Name of a fault -> a function that causes it; it returns False if it was not possible at this moment."""


def space(trials: int, *, trains: bool, data: Path | None = None, is_elastic: bool = False) -> dict[str, Any]:
    """The content of ``space.yaml``; with `is_elastic`, blocks of one rank that join others."""
    content: dict[str, Any] = {
        "study": STUDY,
        "store": f"sqlite:///{STUDY}.db",
        "space": {"x": {"type": "real", "low": 0.0, "high": 1.0}},
        "search": {"strategy": f"{HERE / 'jumping_clock.py'}:JumpingClock", "trials": trials, "seed": 3},
        "blocks": {"size": 1 if is_elastic else 2, "silence": SILENCE_S, "elastic": is_elastic},
        "trial": {"retries": 20},
    }
    if not trains:
        return content | {"objective": f"{HERE / 'objectives.py'}:{'elastic' if is_elastic else 'agreed'}"}
    training = {
        "model": f"{HERE / 'network.py'}:build",
        "parameters": {"units": 16, "dropout": "$x"},
        "data": {"train": [str(data)], "features": "X", "labels": "y", "validation_fraction": 0.2},
        "loss": "sparse_categorical_crossentropy",
        "optimizer": "adam",
        "batch_size": {"total": 32, "shards": 4} if is_elastic else 32,
        "epochs": 20,
        "checkpoint": {"path": f"{STUDY}.checkpoints", "every": 1},
    }
    return content | {"figure_of_merit": "val_loss", "training": training}


def one_round(seed: int, folder: Path, trials: int, names: list[str], n_faults: int, content: dict[str, Any]) -> dict:
    """Runs a search with at most `n_faults` faults; returns its problems, and seconds to the next start of a trial."""
    draw = random.Random(seed)
    with Launched(folder, N_RANKS, content, restarts=RESTARTS, silence_s=SILENCE_S, start_s=START_S) as search:
        one = Round(folder, search, trials, draw)
        while search.is_running and len(one.faults) < n_faults and time.time() - search.began < LIMIT_S:
            n_ended = _n_ended(one)
            _wait(one, draw.uniform(0.5, 5.0), (n_ended + trials) / 2)
            if not n_ended or _n_ended(one) >= trials:  # a fault needs a search with results
                continue
            name, at = draw.choice(names), time.time()
            if FAULTS[name](one):
                one.faults.append((name, at))
        try:
            status: object = search.wait(LIMIT_S)
        except Hung as error:
            (folder / "stacks.txt").write_text(str(error))
            status = "hung"
    problems = [] if status == 0 else [f"status {status}"]
    return {"faults": one.faults, "problems": problems + wrong(one), "to_next_start_s": to_next_start_s(one)}


def _wait(one: Round, seconds: float, n_ended: float) -> None:
    """Waits for this time, but not longer than until so many trials have ended: a fast search has its faults too."""
    end = time.time() + seconds
    while time.time() < end and _n_ended(one) < n_ended:
        time.sleep(0.05)


def _n_ended(one: Round) -> int:
    rows = query(one.database, "SELECT count(*) FROM trials WHERE state IN ('complete', 'failed')")
    return rows[0][0] if rows else 0


def wrong(one: Round) -> list[str]:
    """Trials that are not complete exactly once, or have another figure of merit than x²."""
    rows = query(one.database, "SELECT number, state, figure_of_merit, parameters FROM trials ORDER BY number")
    problems = [] if [row[0] for row in rows] == list(range(one.trials)) else [f"trials {[row[0] for row in rows]}"]
    problems += [f"trial {number} is {state}" for number, state, *_ in rows if state != "complete"]
    odd = "SELECT trial_id, count(*) FROM attempts WHERE outcome = 'complete' GROUP BY trial_id HAVING count(*) != 1"
    problems += [f"trial {number % 10**9} was complete {n} times" for number, n in query(one.database, odd)]
    if "objective:" in (one.folder / "space.yaml").read_text():
        different = (
            "SELECT number FROM trials WHERE abs(figure_of_merit - json_extract(parameters, '$.x') *"
            " json_extract(parameters, '$.x')) > 1e-12"
        )
        problems += [f"trial {number} has a wrong figure of merit" for (number,) in query(one.database, different)]
    if query(one.database, "PRAGMA integrity_check") != [("ok",)]:
        problems.append("the store is damaged")
    return problems


def n_moved(folder: Path) -> int:
    """How often a trial has continued on another number of ranks."""
    return query(folder / f"{STUDY}.db", "SELECT count(*) FROM attempts WHERE outcome = 'moved'")[0][0]


def to_next_start_s(one: Round) -> list[tuple[str, float]]:
    """For each fault, the seconds until a trial has started; faults after the last start are left out."""
    starts = [
        datetime.fromisoformat(at).timestamp() for (at,) in query(one.database, "SELECT started_at FROM attempts")
    ]
    after = [(name, min((start - at for start in starts if start > at), default=None)) for name, at in one.faults]
    return [(name, seconds) for name, seconds in after if seconds is not None]


def table(rounds: list[dict], left_out: dict[str, str]) -> str:
    """The results of all rounds."""
    n_passed, n_restarts = sum(not one["problems"] for one in rounds), sum(one["n_restarts"] for one in rounds)
    n_trials, n_moves = sum(one["trials"] for one in rounds), sum(one["n_moved"] for one in rounds)
    lines = [
        f"{n_passed} of {len(rounds)} searches finished with each trial complete exactly once; "
        f"{n_trials:,} trials, {n_restarts} restarts, {n_moves} continuations on other numbers of ranks",
        "",
        "| fault | times | next trial started after: median, longest |",
        "|---|---|---|",
    ]
    times: dict[str, list[float]] = defaultdict(list)
    for one in rounds:
        for name, seconds in one["to_next_start_s"]:
            times[name].append(seconds)
    for name in FAULTS:
        n = sum(fault == name for one in rounds for fault, _ in one["faults"])
        if n:
            found = times[name]
            shown = f"{statistics.median(found):.1f} s, {max(found):.1f} s" if found else ""
            lines.append(f"| {name} | {n} | {shown} |")
        elif name in left_out:
            lines.append(f"| {name} | 0 | {left_out[name]} |")
    lines += [f"\nround {n}: {problem}" for n, one in enumerate(rounds) for problem in one["problems"]]
    return "\n".join(lines)


def possible() -> tuple[list[str], dict[str, str]]:
    """The faults that are possible on this machine, and why others are not."""
    left_out = {}
    if os.geteuid() != 0:
        left_out["disk full"] = "needs root, to mount a small file system"
    if find_spec("torch") is None:
        left_out["checkpoint damaged"] = "needs PyTorch, for trainings"
    return [name for name in FAULTS if name not in left_out], left_out


def _make_folder(path: Path) -> bool:
    """Creates the folder of a round, as a small file system if possible; returns whether it is one."""
    path.mkdir(parents=True)
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={FULL_MB}m", "tmpfs", str(path)]
    return os.geteuid() == 0 and subprocess.run(mounting, capture_output=True, check=False).returncode == 0


def run_rounds(minutes: float, seed: int, names: list[str], options: argparse.Namespace) -> list[dict]:
    """Runs rounds until the time is over; those of the same seed have the same faults at the same intervals."""
    rounds: list[dict] = []
    until, data = time.time() + 60 * minutes, None
    if "checkpoint damaged" in names:
        from mpi_learn.known_data import prepare

        prepare("digits", data := Path(tempfile.mkdtemp(prefix="chaos-data-")) / "digits.h5")
    while time.time() < until and len(rounds) < options.rounds:
        number = len(rounds)
        trains = "checkpoint damaged" in names and (number % 3 == 2 or names == ["checkpoint damaged"])
        trials = options.trials if not trains else max(options.trials // 6, 4)
        folder = Path(tempfile.mkdtemp(prefix="chaos-")) / "round"
        is_mounted = _make_folder(folder)
        chosen = [name for name in names if trains or name != "checkpoint damaged"]
        try:
            content = space(trials, trains=trains, data=data, is_elastic=options.elastic)
            one = one_round(seed + number, folder, trials, chosen, options.faults, content)
            restarts = query(folder / f"{STUDY}.db", "SELECT count(*) FROM events WHERE kind = 'search_restarted'")
            one |= {"trials": trials, "n_restarts": restarts[0][0] if restarts else 0, "n_moved": n_moved(folder)}
            if one["problems"]:
                print((folder / "out.txt").read_text()[-5000:])
        finally:
            if is_mounted:
                subprocess.run(["umount", "-l", str(folder)], check=False)
        rounds.append(one)
        print(number, [name for name, _ in one["faults"]], one["problems"], flush=True)
    return rounds


def main() -> None:
    """Runs rounds and prints the table."""
    end_in_order()
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=10**6)
    parser.add_argument("--trials", type=int, default=150)
    parser.add_argument("--faults", type=int, default=6, help="faults per round, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--elastic", action="store_true", help="blocks.elastic: trials change their numbers of ranks")
    parser.add_argument("--only", action="append", choices=list(FAULTS))
    options = parser.parse_args()
    names, left_out = possible()
    names = [name for name in names if not options.only or name in options.only]
    rounds = run_rounds(options.minutes, options.seed, names, options)
    print(f"\n{table(rounds, left_out)}")
    sys.exit(any(one["problems"] for one in rounds))


if __name__ == "__main__":
    main()
