"""Whether it pays to sum gradients in buckets while back-propagation goes on: in shared memory, and over slow networks.

    python measure.py --data mnist.h5 [--rates 1000mbit 300mbit] [--bucket-bytes 262144 1048576]

Two ranks train the PyTorch CNN of `experiments/training_speed` (421,576 parameters), batch 128, one thread a rank. A
slow network is two network namespaces on this machine joined by links of a limited rate (Linux, root, iproute2). Prints
a Markdown table of samples per second, the best of the epochs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import yaml

from mpi_learn.cli.launch import find_mpirun, launch_environment, launch_flags

HERE = Path(__file__).resolve().parent
NETWORK = "10.78.0"
HOSTS = (11, 12)
AGENT = f"{HERE}/agent.sh"


def shell(*lines: str) -> None:
    for line in lines:
        subprocess.run(line.split(), check=True, capture_output=True)


def joined(rate: str) -> None:
    """Two hosts, each a network namespace, at a bridge; both ends of each link let `rate` through."""
    shell("ip link add buckets type bridge", f"ip addr add {NETWORK}.1/24 dev buckets", "ip link set buckets up")
    for host in HOSTS:
        shell(
            f"ip netns add buckets{host}",
            f"ip link add buckets{host} type veth peer name eth0 netns buckets{host}",
            f"ip link set buckets{host} master buckets up",
            f"ip -n buckets{host} addr add {NETWORK}.{host}/24 dev eth0",
            f"ip -n buckets{host} link set eth0 up",
            f"ip -n buckets{host} link set lo up",
            f"tc qdisc add dev buckets{host} root tbf rate {rate} burst 256kb latency 200ms",
            f"ip netns exec buckets{host} tc qdisc add dev eth0 root tbf rate {rate} burst 256kb latency 200ms",
        )


def parted() -> None:
    for line in (*(f"ip netns del buckets{host}" for host in HOSTS), "ip link del buckets"):
        subprocess.run(line.split(), check=False, capture_output=True)


def speed(arguments: argparse.Namespace, folder: Path, bucket_bytes: int | None, *, is_slow: bool) -> float:
    """Samples per second of the best epoch."""
    content = {
        "model": f"{HERE.parent}/training_speed/torch_models.py:cnn",
        "loss": "cross_entropy",
        "data": {"train": [str(folder / "mnist.h5")], "features": "X", "labels": "y"},
        "batch_size": 128,
        "epochs": arguments.epochs,
        "algorithm": {"name": "allreduce", "bucket_bytes": bucket_bytes},
    }
    with h5py.File(arguments.data) as source, h5py.File(folder / "mnist.h5", "w") as file:
        file["X"], file["y"] = source["X"][:].reshape(-1, 28, 28), source["y"][:]
    (folder / "training.yaml").write_text(yaml.safe_dump(content))
    executable = find_mpirun()
    command = [executable, *launch_flags(executable), "-np", "2"]
    if is_slow:
        hosts = ",".join(f"{NETWORK}.{host}:1" for host in HOSTS)
        interfaces = [
            "--mca",
            "btl_tcp_if_include",
            f"{NETWORK}.0/24",
            "--prtemca",
            "prte_if_include",
            f"{NETWORK}.0/24",
        ]
        command += ["--prtemca", "plm_ssh_agent", AGENT, "--host", hosts, "--map-by", "ppr:1:node", *interfaces]
        command += ["-x", "PYTHONPATH", "-x", "OMP_NUM_THREADS", "-x", "PATH"]
    one = [sys.executable, str(HERE.parent / "data_wait" / "one.py"), str(folder / "training.yaml")]
    environment = launch_environment() | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([*command, *one], check=True, env=environment, timeout=110)
    return max(json.loads((folder / "speeds.json").read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rates", nargs="*", default=["1000mbit", "300mbit"])
    parser.add_argument("--bucket-bytes", nargs="*", type=int, default=[262_144, 1_048_576])
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    sizes = [None, *arguments.bucket_bytes]
    print("| network | one piece | " + " | ".join(f"buckets of {size:,} bytes" for size in sizes[1:]) + " |")
    print("|---" * (len(sizes) + 1) + "|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        for rate in (None, *arguments.rates):
            try:
                if rate is not None:
                    joined(rate)
                speeds = [speed(arguments, Path(name), size, is_slow=rate is not None) for size in sizes]
            finally:
                parted()
            print(f"| {rate or 'shared memory'} | {' | '.join(f'{one:,.0f}' for one in speeds)} |", flush=True)


main()
