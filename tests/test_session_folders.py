from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import session_folders


def test_folders_of_ended_processes_are_removed():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    base = Path(os.environ[session_folders.VARIABLE])
    folders = {process: base / f"ompi.{process}" for process in (ended.pid, os.getpid())}
    for folder in folders.values():
        (folder / "1").mkdir(parents=True)
    session_folders.remove_stale()
    assert not folders[ended.pid].exists()
    assert folders[os.getpid()].exists()
    (folders[os.getpid()] / "1").rmdir()
    folders[os.getpid()].rmdir()
