"""Half an hour on 64 ranks, with trials that fail or hang, and a client that reads the store during the search.

Run it in the project's folder: python experiments/chaos/soak.py [--minutes 30] [--ranks 64]
Prints the rows of this experiment in README.md.
"""

from __future__ import annotations

import argparse
import re
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

from launched import Launched, end_in_order, query
from objectives import fate

WARM_UP_S = 300.0
"""The growth of rank 0's memory is measured from this time on, in seconds."""

QUERIES = (
    "SELECT state, count(*) FROM trials GROUP BY state",
    "SELECT number, figure_of_merit FROM study_soak WHERE state = 'complete' ORDER BY figure_of_merit LIMIT 5",
    "SELECT avg(value) FROM metrics WHERE epoch = 4",
)


def space(minutes: float) -> dict:
    """The content of ``space.yaml``: 20 blocks of three ranks and three spare ranks."""
    return {
        "study": "soak",
        "store": "sqlite:///soak.db",
        "objective": f"{Path(__file__).with_name('objectives.py')}:nap",
        "space": {"x": {"type": "real", "low": 0.0, "high": 1.0}},
        "search": {"strategy": "random", "trials": 10**6, "seed": 1, "time_limit": f"{minutes}m"},
        "blocks": {"size": 3, "spares": 3},
        "trial": {"timeout": "8s"},
    }


def memory_mb(pid: int) -> float:
    """The resident memory of a process in MB (10⁶ bytes)."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def watch(search: Launched, database: Path, limit_s: float) -> tuple[list[tuple[float, float]], list[float]]:
    """Queries the store in a loop and records the memory of rank 0 until the search has ended.

    Returns:
        (seconds since the first trial, MB) of rank 0; the duration of each query in seconds.
    """
    memory, query_times_s, since = [], [], None
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as client:
        while search.is_running and time.time() - search.began < limit_s:
            for sql in QUERIES:
                began = time.perf_counter()
                client.execute(sql).fetchall()
                query_times_s.append(time.perf_counter() - began)
            since = since or time.time()
            try:
                memory.append((time.time() - since, memory_mb(search.pids[0])))
            except (OSError, KeyError):
                continue
            time.sleep(0.5)
    return [point for point in memory if point[1] > 0], query_times_s


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


def report(database: Path, status: int, memory: list, query_times_s: list[float]) -> None:
    """Prints the rows."""
    later_mb = [mb for at, mb in memory if at >= WARM_UP_S] or [mb for _, mb in memory[-2:]]
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
        "memory of rank 0 after 5 minutes → maximum later": f"{later_mb[0]:.1f} → {max(later_mb):.1f} MB",
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
        memory, query_times_s = watch(search, folder / "soak.db", 60 * options.minutes + 300)
        status = search.wait(60)
    report(folder / "soak.db", status, memory, query_times_s)


if __name__ == "__main__":
    main()
