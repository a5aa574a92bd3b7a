"""Half an hour on 64 ranks, with trials that fail or hang, and a client that reads the store during the search.

Run it in the project's folder: python experiments/chaos/soak.py [--minutes 30] [--ranks 64]
Prints the rows of this experiment in README.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from launched import Launched, end_in_order, query
from objectives import fate

WARM_UP_S = 300.0
"""The growth of rank 0's memory is measured from this time on, in seconds."""

TRIALS_PER_MINUTE = 425
"""On 64 ranks, while one block after the other is lost."""

QUERIES = (
    "SELECT state, count(*) FROM trials GROUP BY state",
    "SELECT number, figure_of_merit FROM study_soak WHERE state = 'complete' ORDER BY figure_of_merit LIMIT 5",
    "SELECT avg(value) FROM metrics WHERE epoch = 4",
)


def space(minutes: float) -> dict:
    """The content of ``space.yaml``: 20 blocks of three ranks and three spare ranks, all of which are lost in time."""
    return {
        "study": "soak",
        "store": "sqlite:///soak.db",
        "objective": f"{Path(__file__).with_name('objectives.py')}:nap",
        "space": {"x": {"type": "real", "low": 0.0, "high": 1.0}},
        "search": {"strategy": "random", "trials": round(TRIALS_PER_MINUTE * minutes), "seed": 1},
        "blocks": {"size": 3, "spares": 3},
        "trial": {"timeout": "8s"},
    }


class Size(NamedTuple):
    """What a process holds: memory in MB (10⁶ bytes), threads, open files; at a time in seconds since 1970."""

    at_s: float
    mb: float
    threads: int
    files: int


def size(pid: int) -> Size | None:
    """The size of a process; None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        n_files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return None
    memory, threads = re.search(r"VmRSS:\s+(\d+) kB", status), re.search(r"Threads:\s+(\d+)", status)
    return Size(time.time(), int(memory[1]) * 1024 / 1e6, int(threads[1]), n_files) if memory and threads else None


def watch(search: Launched, database: Path, limit_s: float) -> tuple[list[Size], list[float]]:
    """Queries the store in a loop and records the size of rank 0 until the search has ended.

    Returns:
        The sizes of rank 0; the duration of each query in seconds.
    """
    sizes: list[Size] = []
    query_times_s: list[float] = []
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as client:
        while search.is_running and time.time() - search.began < limit_s:
            for sql in QUERIES:
                began = time.perf_counter()
                client.execute(sql).fetchall()
                query_times_s.append(time.perf_counter() - began)
            found = size(search.pids[0])
            if found is not None:
                sizes.append(found)
                (database.parent / "sizes.json").write_text(json.dumps(sizes))
            time.sleep(0.5)
    return sizes, query_times_s


def ready(search: Launched, database: Path) -> None:
    """Waits for the first result."""
    while search.is_running and not query(database, "SELECT 1 FROM trials WHERE state = 'complete' LIMIT 1"):
        time.sleep(0.5)


def longest_gap_s(database: Path) -> float:
    """The longest time between two consecutive results."""
    (gap,) = query(
        database,
        "SELECT 86400 * max(gap) FROM (SELECT julianday(finished_at) - julianday(lag(finished_at) OVER"
        " (ORDER BY finished_at)) AS gap FROM trials WHERE finished_at IS NOT NULL)",
    )[0]
    return gap


def wrong(database: Path) -> list[int]:
    """Trials with an unexpected outcome."""
    fitting = {"raise": ("failed",), "nap": ("complete",)}
    rows = query(database, "SELECT number, state FROM trials WHERE state NOT IN ('queued', 'pruned')")
    return [number for number, state in rows if state not in fitting.get(fate(number), ("failed",))]


def gained(values: Sequence[float]) -> str:
    """The first value and the largest one."""
    return f"{values[0]:g} → {max(values):g}"


def report(database: Path, status: int, sizes: list[Size], query_times_s: list[float]) -> None:
    """Prints the rows."""
    ((last_s,),) = query(database, "SELECT 86400 * (julianday(max(finished_at)) - 2440587.5) FROM trials")
    running = [one for one in sizes if one.at_s <= last_s]
    later = [one for one in running if one.at_s >= sizes[0].at_s + WARM_UP_S] or running[-2:]
    states = dict(query(database, "SELECT state, count(*) FROM trials GROUP BY state"))
    events = dict(query(database, "SELECT kind, count(*) FROM events GROUP BY kind"))
    reasons = {
        "by an exception": "error LIKE '%TrialTimeout%'",
        "by the end of a process": "error LIKE '%longer than trial.timeout%:%' AND error NOT LIKE '%TrialTimeout%'",
    }
    hung = {
        name: query(database, f"SELECT count(*) FROM trials WHERE state = 'failed' AND {condition}")[0][0]
        for name, condition in reasons.items()
    }
    lines = {
        "exit status": status,
        "trials by state": ", ".join(f"{count} {state}" for state, count in states.items()),
        "trials with an unexpected end": len(wrong(database)),
        "hanging trials ended": ", ".join(f"{count} {name}" for name, count in hung.items()),
        "events": ", ".join(f"{count} {kind}" for kind, count in events.items()) or "none",
        "memory of rank 0 after 5 minutes → maximum later": f"{gained([round(one.mb, 1) for one in later])} MB",
        "threads of rank 0, likewise": gained([one.threads for one in later]),
        "open files of rank 0, likewise": gained([one.files for one in later]),
        "memory of rank 0 while it reads all trials, after the last one": f"{max(one.mb for one in sizes):.1f} MB",
        "longest time without a result": f"{longest_gap_s(database):.1f} s",
        "queries of the client; slowest": f"{len(query_times_s)}; {max(query_times_s):.2f} s",
    }
    for what, found in lines.items():
        print(f"| {what} | {found} |", flush=True)


def main() -> None:
    """Runs the search and prints the rows."""
    end_in_order()
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    with Launched(folder, options.ranks, space(options.minutes)) as search:
        ready(search, folder / "soak.db")
        sizes, query_times_s = watch(search, folder / "soak.db", 120 * options.minutes + 300)
        status = search.wait(60)
    report(folder / "soak.db", status, sizes, query_times_s)


if __name__ == "__main__":
    main()
