"""A real Slurm of three compute nodes on one machine, in namespaces.

Each node is a set of network, UTS, IPC, mount and PID namespaces: it has its own host name, address, process table,
``/tmp`` and ``/dev/shm``. All nodes see the same file system otherwise. The nodes are joined by a bridge in a network
namespace of the cluster; ``slurmctld`` runs on the node ``login``, one ``slurmd`` on each of ``n1``, ``n2``, ``n3``.

All processes of the cluster live in one PID namespace, so the kernel ends all of them with its first process; that one
ends with the Python process that started the cluster, however the latter ends. Nothing has a name outside: networks
and mounts disappear with the last process that uses them.

Needs Linux, root, and the Debian packages ``slurm-wlm``, ``munge``, ``iproute2`` (or their equals).

As a program it builds a cluster and runs a shell on its login node::

    python -m tests.slurm.cluster [COMMAND…]
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

LOGIN, NODES = "login", ("n1", "n2", "n3")
CPUS = 8
"""Processors of a node in Slurm's configuration, enough for all jobs of the tests; the machine may have fewer."""

FIRST = ("nice", "-n", "-10")
"""Slurm has priority over other tests: between a signal and the end of a job, ranks have a quarter of a second."""

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "ip", "unshare", "nsenter")

CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={login}({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=100000
SlurmctldTimeout=60
SlurmdTimeout={slurmd_timeout_s}
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why there can be no cluster on this machine; empty where there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs Linux and root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=_searched()) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    probe = "ip link add probe0 type bridge && ip link add probe1 type veth peer name probe2"
    found = subprocess.run(["unshare", "-n", "sh", "-c", probe], capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else f"no network namespaces: {found.stderr.strip()}"


def _searched() -> str:
    """The folders of programs, with those for daemons, which the PATH of a user may lack."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


class SlurmCluster:
    """A running cluster; see `slurm_cluster`.

    Attributes:
        folder: Its files; the same path on all nodes.
        pids: Node -> the process id of its first process, as this process sees it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pids: dict[str, int] = {}
        self._namespaces: subprocess.Popen[str] | None = None
        self._outer = 0

    def start(self, slurmd_timeout_s: int) -> None:
        """Builds the network and starts all daemons; returns when all nodes are idle."""
        self._write_configuration(slurmd_timeout_s)
        self._namespaces = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "infinity"],
            preexec_fn=_end_with_parent,
            start_new_session=True,
        )
        self._outer = _first_child(self._namespaces.pid)
        self._network("link", "add", "switch", "type", "bridge")
        self._network("link", "set", "switch", "up")
        self._munge()
        for number, name in enumerate((LOGIN, *NODES)):
            self._start_node(name, f"10.77.0.{10 + number}")
        wait_until(self._is_idle, 60, "the nodes did not become idle")

    def stop(self) -> None:
        """Ends every process of the cluster."""
        if self._namespaces is not None:
            self._namespaces.kill()
            self._namespaces.wait()
            wait_until(lambda: not Path(f"/proc/{self._outer}").exists(), 60, "the cluster did not end")

    def run(self, *command: object, node: str = LOGIN, timeout_s: float = 60, **options: Any) -> str:
        """Runs a command on a node; returns its standard output.

        Raises:
            AssertionError: Its exit status is not 0.
        """
        done = self.completed(*command, node=node, timeout_s=timeout_s, **options)
        assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def completed(
        self,
        *command: object,
        node: str = LOGIN,
        timeout_s: float = 60,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on a node."""
        entered = self._entered(node, command, cwd)
        return subprocess.run(entered, capture_output=True, text=True, timeout=timeout_s, env=env, check=False)

    def open(self, *command: object, node: str = LOGIN, cwd: Path | None = None, **options: Any) -> subprocess.Popen:
        """Starts a command on a node."""
        return subprocess.Popen(self._entered(node, command, cwd), **options)

    def processes(self, node: str, pattern: str) -> list[int]:
        """Process ids on a node, as the node numbers them, of the command lines that match `pattern`."""
        return [int(word) for word in self.completed("pgrep", "-f", pattern, node=node).stdout.split()]

    def kill(self, node: str, pattern: str, name: str = "KILL") -> None:
        """Sends a signal to all processes of a node whose command line matches `pattern`."""
        self.run("pkill", f"-{name}", "-f", pattern, node=node)

    def power_off(self, node: str) -> None:
        """Ends a node's network, and then all its processes: no message closes its connections to other nodes."""
        self._network("link", "delete", f"to-{node}")
        os.kill(self.pids.pop(node), signal.SIGKILL)

    def cut(self, node: str) -> None:
        """Cuts the cable of a node, whose processes continue: no message closes its connections."""
        self._network("link", "set", f"to-{node}", "down")

    def mend(self, node: str) -> None:
        """Mends the cable of a node."""
        self._network("link", "set", f"to-{node}", "up")

    def freeze(self, node: str, *, thaw: bool = False) -> None:
        """Stops all processes of a node except the first one, or continues them."""
        name = "CONT" if thaw else "STOP"
        self.completed("sh", "-c", f"kill -{name} $(ps -eo pid= | grep -vw 1 | grep -vw $$)", node=node)

    def power_on(self, node: str) -> None:
        """Starts a node again."""
        self._start_node(node, f"10.77.0.{10 + (LOGIN, *NODES).index(node)}")
        wait_until(self._is_idle, 60, f"{node} did not come back")

    def _entered(self, node: str, command: tuple[object, ...], cwd: Path | None) -> list[str]:
        where = ["--target", str(self.pids[node]), "--mount", "--uts", "--ipc", "--net", "--pid"]
        return ["nsenter", *where, f"--wd={cwd or self.folder}", "--", *map(str, command)]

    def _start_node(self, name: str, address: str) -> None:
        daemon = ["slurmctld", "-D"] if name == LOGIN else ["slurmd", "-D", "-N", name]
        shared = os.pathsep.join({sys.prefix, str(Path(__file__).parents[2])})
        node = [sys.executable, str(Path(__file__).with_name("node.py")), name, str(self.folder), shared, *daemon]
        unshare = ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (self.folder / f"{name}.out").open("ab") as log:
            process = subprocess.Popen(
                ["nsenter", "--target", str(self._outer), "--mount", "--pid", "--", *FIRST, *unshare, *node],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert process.stdout.readline() == "ready\n", (self.folder / f"{name}.out").read_text()
        self.pids[name] = _last_child(process.pid)
        cable = f"to-{name}"
        self._network("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(self.pids[name]))
        self._network("link", "set", cable, "master", "switch", "up")
        inside = ["nsenter", "--target", str(self.pids[name]), "--net", "--", "ip"]
        subprocess.run([*inside, "address", "add", f"{address}/24", "dev", "eth0"], check=True)
        subprocess.run([*inside, "link", "set", "eth0", "up"], check=True)
        process.stdin.write("connected\n")
        process.stdin.flush()

    def _network(self, *arguments: str) -> None:
        subprocess.run(["nsenter", "--target", str(self._outer), "--net", "--", "ip", *arguments], check=True)

    def _munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={self.folder}/munge.{suffix}" for option, suffix in files.items()]
        entered = ["nsenter", "--target", str(self._outer), "--mount", "--pid", "--"]
        subprocess.run([*entered, "munged", "--force", *options], check=True, capture_output=True)

    def _write_configuration(self, slurmd_timeout_s: int) -> None:
        addresses = {name: f"10.77.0.{10 + number}" for number, name in enumerate((LOGIN, *NODES))}
        hosts = "".join(f"{address} {name}\n" for name, address in addresses.items())
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
        nodes = [f"NodeName={name} NodeAddr={addresses[name]} CPUs={CPUS} RealMemory=8000" for name in NODES]
        values = {"folder": self.folder, "login": LOGIN, "address": addresses[LOGIN], "nodes": "\n".join(nodes)}
        text = CONFIGURATION.format(**values, slurmd_timeout_s=slurmd_timeout_s)
        (self.folder / "slurm.conf").write_text(text)

    def _is_idle(self) -> bool:
        states = self.completed("sinfo", "--noheader", "--Node", "--format=%t").stdout.split()
        return states == ["idle"] * len(NODES)


@contextmanager
def slurm_cluster(folder: Path, slurmd_timeout_s: int = 10) -> Iterator[SlurmCluster]:
    """A running cluster, until the end of the block.

    Args:
        folder: Empty; for configuration, logs and the cluster's state. Its path must be short, for it holds a socket.
        slurmd_timeout_s: A node that has not answered for so long is down.
    """
    cluster = SlurmCluster(folder)
    with patch.dict(os.environ, {"PATH": _searched()}):
        try:
            cluster.start(slurmd_timeout_s)
            yield cluster
        finally:
            cluster.stop()


def wait_until(is_true: Callable[[], Any], timeout_s: float, why: str, *, every_s: float = 0.1) -> Any:
    """Calls `is_true` every `every_s` seconds until it returns something true, and returns that.

    Raises:
        AssertionError: It did not within `timeout_s`; the message is `why`.
    """
    end = time.monotonic() + timeout_s
    while not (value := is_true()):
        assert time.monotonic() < end, why
        time.sleep(every_s)
    return value


def _end_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _first_child(pid: int) -> int:
    return wait_until(lambda: _children(pid), 10, "unshare started nothing")[0]


def _last_child(pid: int) -> int:
    """The end of a chain of processes of one child each: nsenter, unshare, the node's first process."""
    while children := _children(pid):
        pid = children[0]
    return pid


if __name__ == "__main__":
    if why := missing():
        sys.exit(f"no Slurm here: {why}")
    with tempfile.TemporaryDirectory(prefix="slurm-") as place, slurm_cluster(Path(place)) as here:
        sys.exit(here.open(*(sys.argv[1:] or ["bash"]), cwd=Path.cwd()).wait())
