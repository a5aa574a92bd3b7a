"""The folders of Open MPI's ``mpirun``, ``ompi.PID``, in a folder of this process.

An ``mpirun`` that is killed leaves its folder behind. A later one with the same process number finds
files there and does not start. The tests kill many, and use up all process numbers several times in an hour.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_FOLDERS = tempfile.TemporaryDirectory(prefix="mpirun-", ignore_cleanup_errors=True)
VARIABLE = "PRTE_MCA_prte_tmpdir_base"
"""The environment variable with which Open MPI 5 finds the folder for these folders."""


def use_own_folder() -> None:
    """Lets each ``mpirun`` that this process starts from now on keep its files in a folder of this process."""
    os.environ[VARIABLE] = _FOLDERS.name


def remove_stale() -> None:
    """Removes the folders whose ``mpirun`` has ended."""
    for folder in Path(_FOLDERS.name).glob("ompi.*"):
        number = folder.suffix[1:]
        if number.isdigit() and not _is_alive(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
