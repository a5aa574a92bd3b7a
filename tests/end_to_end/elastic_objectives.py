"""Functions of the user that continue on another number of ranks. They are as much faster as they have more ranks."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

EPOCH_S = 0.1


def summed(trial) -> float:
    """The sum of 1/e over all epochs e, each of which was trained once; trial 0 has 40 epochs, the others have 3."""
    epoch, value = trial.state or (0, 0.0)
    total = 40 if trial.number == 0 else 3
    while epoch < total:
        time.sleep(EPOCH_S / trial.comm.size)
        epoch += 1
        value += 1 / epoch
        trial.resize(epoch, total, lambda epoch=epoch, value=value: (epoch, value))
    return value


def dying(trial) -> float:
    """As `summed`; the last rank that joins a running trial is killed at once, one time."""
    if trial.state is not None and trial.comm.rank == trial.comm.size - 1 and not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return summed(trial)
