"""When Slurm ends the job in which this process runs."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping

ASK_S = 20.0
"""Slurm's controller has so long to answer, in seconds."""

LEAST_MARGIN_S, MOST_MARGIN_S = 5.0, 30.0
"""A program should have ended this long before its job does, in seconds; see `margin_s`."""


def job_end_s(
    environment: Mapping[str, str] = os.environ, ask: Callable[[str], str] | None = None, now_s: float | None = None
) -> float | None:
    """When Slurm ends this job, in seconds since 1970; None outside of Slurm, without a time limit, or if unknown.

    Slurm 23.02 and later set ``SLURM_JOB_END_TIME``; earlier versions are asked.

    Args:
        environment: Of this process.
        ask: Returns what ``squeue`` says of the time left of a job; None: runs ``squeue``.
        now_s: Seconds since 1970; None: the clock.
    """
    end = environment.get("SLURM_JOB_END_TIME", "")
    if end.isdigit():
        return float(end)
    job = environment.get("SLURM_JOB_ID", "")
    left_s = seconds_left((ask or _ask_squeue)(job)) if job else None
    return None if left_s is None else left_s + (time.time() if now_s is None else now_s)


def seconds_left(text: str) -> float | None:
    """``1-02:03:04``, ``02:03:04`` or ``3:04`` in seconds; None for anything else, such as ``UNLIMITED``."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(group or 0) for group in found.groups())
    return 86400.0 * days + 3600.0 * hours + 60.0 * minutes + seconds


def margin_s(left_s: float) -> float:
    """How long before its job's end a program should have ended: a tenth of the time left at its start, 5 to 30 s."""
    return min(max(left_s / 10, LEAST_MARGIN_S), MOST_MARGIN_S)


def _ask_squeue(job: str) -> str:
    command = ["squeue", "--noheader", "--format=%L", f"--jobs={job}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
