"""The end of the Slurm job in which this process runs."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping

ASK_S = 20.0
"""Timeout of a request to Slurm's controller, in seconds."""

LEAST_MARGIN_S, MOST_MARGIN_S = 5.0, 30.0
"""Limits of the time between the end of a program and the end of its job, in seconds."""


def job_end_s(
    environment: Mapping[str, str] = os.environ, ask: Callable[[str], str] | None = None, now_s: float | None = None
) -> float | None:
    """The end of this Slurm job, in seconds since 1970; None outside of Slurm, without a time limit, or if unknown.

    Slurm 23.02 and later set ``SLURM_JOB_END_TIME``; for earlier versions ``squeue`` is called.

    Args:
        ask: Returns the remaining time of a job in the format of ``squeue``; default: runs ``squeue``.
        now_s: Seconds since 1970; default: the current time.
    """
    end = environment.get("SLURM_JOB_END_TIME", "")
    if end.isdigit():
        return float(end)
    job = environment.get("SLURM_JOB_ID", "")
    left_s = seconds_left((ask or _ask_squeue)(job)) if job else None
    return None if left_s is None else left_s + (time.time() if now_s is None else now_s)


def seconds_left(text: str) -> float | None:
    """Converts ``1-02:03:04``, ``02:03:04`` or ``3:04`` to seconds; None for anything else, such as ``UNLIMITED``."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(group or 0) for group in found.groups())
    return 86400.0 * days + 3600.0 * hours + 60.0 * minutes + seconds


def margin_s(left_s: float) -> float:
    """Seconds by which a program ends before its job: a tenth of the time left at its start, 5 to 30 s."""
    return min(max(left_s / 10, LEAST_MARGIN_S), MOST_MARGIN_S)


def _ask_squeue(job: str) -> str:
    command = ["squeue", "--noheader", "--format=%L", f"--jobs={job}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
