"""The first process of a node: a host name, private folders, a Slurm daemon; reaps orphaned processes.

`cluster.py` starts it in fresh network, UTS, IPC, mount and PID namespaces. All processes of the node end with it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

PRIVATE = ("/tmp", "/dev/shm")
"""Folders of which every node has its own, as separate hosts do."""


def main(name: str, folder: Path, shared: list[str], daemon: list[str]) -> None:
    """Sets up the node, starts its daemon, and reaps processes until it is killed.

    Args:
        name: Host name.
        folder: The cluster's folder; the same path on all nodes.
        shared: Further paths that stay visible although their parent folder becomes private.
        daemon: Command of the Slurm daemon.
    """
    socket.sethostname(name)
    _make_private([str(folder), *shared])
    _run("mount", "--bind", folder / "hosts", "/etc/hosts")
    _run("mount", "--bind", folder, "/etc/slurm")
    _run("ip", "link", "set", "lo", "up")
    print("ready", flush=True)
    sys.stdin.readline()  # `cluster.py` has connected the network
    with (folder / f"{name}.out").open("ab") as log:
        subprocess.Popen(daemon, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.1)


def _make_private(shared: list[str]) -> None:
    """Mounts empty folders over `PRIVATE`; `shared` paths below them are mounted back."""
    hidden = [path for path in shared if path.startswith(tuple(f"{one}/" for one in PRIVATE))]
    _run("mount", "-t", "tmpfs", "tmpfs", "/mnt")
    for number, path in enumerate(hidden):
        Path(f"/mnt/{number}").mkdir()
        _run("mount", "--bind", path, f"/mnt/{number}")
    for path in PRIVATE:
        _run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", path)
    for number, path in enumerate(hidden):
        Path(path).mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", f"/mnt/{number}", path)


def _run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3].split(os.pathsep), sys.argv[4:])
