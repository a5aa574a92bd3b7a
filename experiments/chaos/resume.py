"""Kills rank 0 of searches at random moments, and resumes each search with the same command.

Run it in the project's folder: python experiments/chaos/resume.py [--runs 50] [--results resume.json]
A client reads the complete trials from the store during the search. Runs that are already in the results file are not
repeated. Prints the rows of this experiment in README.md.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from launched import Hung, Launched, end_in_order, query

N_RANKS, TRIALS = 5, 60
LIMIT_S = 120.0
LONGEST_S = 6.0
"""The latest kill of rank 0, in seconds after the start of the ranks; about the duration of an undisturbed search."""


def space() -> dict[str, Any]:
    """The content of ``space.yaml``: many trials of a fraction of a second."""
    return {
        "study": "resume",
        "store": "sqlite:///resume.db",
        "objective": f"{Path(__file__).with_name('objectives.py')}:short",
        "space": {"x": {"type": "real", "low": -1.0, "high": 1.0}},
        "search": {"strategy": "random", "trials": TRIALS, "seed": 9},
    }


class Client(threading.Thread):
    """Queries the complete trials of the store in a loop, and compares all answers.

    Attributes:
        seen: The figure of merit of each complete trial.
        contradictions: Descriptions of answers that differ from an earlier answer.
    """

    def __init__(self, database: Path) -> None:
        super().__init__(daemon=True)
        self.database, self.seen, self.contradictions = database, {}, []
        self.is_over = threading.Event()

    def run(self) -> None:
        """Queries until `is_over`."""
        while not self.is_over.wait(0.005):
            self.ask()

    def ask(self) -> None:
        """Queries once."""
        rows = query(self.database, "SELECT number, figure_of_merit, state FROM trials")
        complete = {number: value for number, value, state in rows if state == "complete"}
        for number, value in self.seen.items():
            if complete.get(number) != value:
                self.contradictions.append(f"trial {number} was {value!r}, then {complete.get(number)!r}")
        self.seen |= complete


def one_run(seed: int, folder: Path, reference: dict[str, float]) -> dict[str, Any]:
    """Kills rank 0 of a search, resumes the search, and checks the result."""
    draw, problems = random.Random(seed), []
    delay_s = draw.uniform(0, LONGEST_S)
    database = folder / "resume.db"
    client = Client(database)
    with Launched(folder, N_RANKS, space()) as search:
        client.start()
        while search.is_running and not (folder / "resume.logs").exists():
            time.sleep(0.005)
        time.sleep(delay_s)
        was_killed = search.kill(0) is not None
        problems += ended(search, "after the death of rank 0", is_whole=not was_killed)
    n_seen = len(client.seen)
    with Launched(folder, N_RANKS, None) as search:
        problems += ended(search, "when resumed", is_whole=True)
    client.is_over.set()
    client.join()
    client.ask()
    rows = query(database, "SELECT number, state, figure_of_merit FROM trials ORDER BY number")
    if [number for number, _, _ in rows] != list(range(TRIALS)):
        problems.append(f"trials {[number for number, _, _ in rows]}")
    problems += [f"trial {number} is {state}" for number, state, _ in rows if state != "complete"]
    problems += [f"trial {number}: {value!r}" for number, _, value in rows if value != reference.get(str(number))]
    if query(database, "PRAGMA integrity_check") != [("ok",)]:
        problems.append("the database is damaged")
    problems += client.contradictions
    return {"was_killed": was_killed, "delay_s": delay_s, "n_seen": n_seen, "problems": problems}


def ended(search: Launched, when: str, *, is_whole: bool) -> list[str]:
    """Waits for the end; returns problems. The exit status depends on when rank 0 was killed."""
    try:
        status = search.wait(LIMIT_S)
    except Hung as error:
        (search.folder / "stacks.txt").write_text(str(error))
        return [f"hung {when}"]
    return [f"exit status {status} {when}"] if is_whole and status else []


def undisturbed() -> dict[str, float]:
    """The figure of merit of each trial of an undisturbed search."""
    with tempfile.TemporaryDirectory() as name, Launched(Path(name), N_RANKS, space()) as search:
        assert search.wait(LIMIT_S) == 0
        return {
            str(n): value for n, value in query(Path(name) / "resume.db", "SELECT number, figure_of_merit FROM trials")
        }


def main() -> None:
    """Runs what is not yet in the results file, and prints the rows."""
    end_in_order()
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--results", type=Path, default=Path("resume.json"))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "resume")
    options = parser.parse_args()
    known = (
        json.loads(options.results.read_text())
        if options.results.exists()
        else {"undisturbed": undisturbed(), "runs": {}}
    )
    for seed in range(options.runs):
        if str(seed) not in known["runs"]:
            run = one_run(seed, options.folder / f"{seed}-{time.time():.0f}", known["undisturbed"])
            known["runs"][str(seed)] = run
            print(seed, run, flush=True)
        options.results.write_text(json.dumps(known, indent=1))
    runs = [run for run in known["runs"].values() if run["was_killed"]]
    print(f"| passed runs | {sum(not run['problems'] for run in runs)} of {len(runs)} |")
    print(f"| complete trials that the client had seen when rank 0 died | {sum(run['n_seen'] for run in runs):,} |")


if __name__ == "__main__":
    main()
