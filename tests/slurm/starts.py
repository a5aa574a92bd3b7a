"""Starts `tests.slurm.forming` under mpirun many times, and prints how long the starts took and why any of them failed.

Inside a job of several nodes::

    python -m tests.slurm.starts N LIMIT_S RECORD

It appends one JSON line per start to the file RECORD, so that several calls continue one series, and prints a table of
the whole series. Its exit status is 1 if one of its own starts failed.

A rank of a start that has failed, or was slow, either did not get a processor or waited for a message. The record
tells them apart: after every step of every rank it has the seconds since the start of mpirun (``s``), those on a
processor (``ran_s``) and those in which the rank was ready to run but had no processor (``queued_s``).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

N_RANKS = 7
STEPS = ("initialised", "met", "created", "formed", "ended")
"""The steps of a rank: MPI_Init, all members have met, MPI_Comm_create_from_group, MPI_Barrier, and the end."""


def start(limit_s: float) -> dict[str, Any]:
    """Starts mpirun once; returns the line of the record."""
    began_s, load = time.time(), os.getloadavg()[0]
    ranks = [sys.executable, "-m", "tests.slurm.forming", str(began_s), str(limit_s)]
    command = ["timeout", "--kill-after=10", str(limit_s), "mpirun", "-np", str(N_RANKS), "--with-ft", "ulfm", *ranks]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    lines = done.stdout.splitlines()
    reports = [json.loads(line) for line in lines if line.startswith('{"rank"')]
    other = [line for line in lines if not line.startswith('{"rank"')]
    seconds = round(time.time() - began_s, 2)
    return {"status": done.returncode, "s": seconds, "load": load, "reports": reports, "output": other}


def why_failed(one: dict[str, Any]) -> str:
    """The reason for a failed start: exit status, and the first step that some ranks did not pass; empty if none.

    The status alone is not enough: mpirun returns 0 if a rank was killed that is protected by ULFM.
    """
    passed = {step: {report["rank"] for report in one["reports"] if report["step"] == step} for step in STEPS}
    expected = {step: N_RANKS - (step in ("met", "created", "formed")) for step in STEPS}  # rank 0 is in no block
    missing = next((step for step in STEPS if len(passed[step]) < expected[step]), "exit")
    if one["status"] == 0 and missing == "exit":
        return ""
    kind = "not in time" if one["status"] == 124 else f"status {one['status']}"
    return f"{kind}, before '{missing}'"


def table(record: list[dict[str, Any]]) -> str:
    """Number of starts, seconds until each step, and failures by reason."""
    failures = Counter(filter(None, map(why_failed, record)))
    lines = [f"{len(record)} starts, {failures.total()} failed", "seconds      median   90 %    max  of these queued"]
    for step in STEPS:
        last = [max(_reports(one, step), key=lambda report: report["s"]) for one in record if _reports(one, step)]
        if last:
            seconds, slowest = sorted(report["s"] for report in last), max(last, key=lambda report: report["s"])
            high = seconds[min(len(seconds) - 1, int(0.9 * len(seconds)))]
            middle = statistics.median(seconds)
            lines.append(f"{step:12} {middle:6.1f} {high:6.1f} {seconds[-1]:6.1f}  {slowest['queued_s']:.1f}")
    whole = [one["s"] for one in record]
    lines.append(f"{'mpirun ends':12} {statistics.median(whole):6.1f}        {max(whole):6.1f}")
    lines += [f"{n} × {reason}" for reason, n in failures.most_common()]
    return "\n".join(lines)


def _reports(one: dict[str, Any], step: str) -> list[dict[str, Any]]:
    return [report for report in one["reports"] if report["step"] == step]


def main(n_starts: int, limit_s: float, path: Path) -> int:
    """Adds `n_starts` starts to the record; returns the exit status."""
    has_failed = False
    for _ in range(n_starts):
        one = start(limit_s)
        has_failed = has_failed or bool(why_failed(one))
        with path.open("a") as file:
            file.write(json.dumps(one) + "\n")
        if why := why_failed(one):
            last = {report["rank"]: json.dumps(report) for report in one["reports"]}
            print(f"{why}; load {one['load']:.1f}", *last.values(), *one["output"], sep="\n", flush=True)
    print(table([json.loads(line) for line in path.read_text().splitlines()]))
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])))
