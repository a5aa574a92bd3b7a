"""A process that is killed while it writes a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, signal, sys
from pathlib import Path
from mpi_learn.settings.paths import replacing

with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"half of it")
    print(temporary, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_while_writing(path: Path) -> Path:
    """Lets a process be killed while it replaces the file at `path`; returns the temporary file that is left."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=False)
    return Path(done.stdout.strip())
