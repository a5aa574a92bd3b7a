"""Hosts on one machine that are connected by a slow network: network namespaces, and a relay that delays packets.

Each host is a network namespace with one TUN device, which hands its packets to the relay. The relay behaves like a
switch with one cable to each host. A cable transmits one packet after the other at `bandwidth_mbit_s` in each
direction, and adds `latency_s` to each packet. No packet is lost. Programs use ordinary TCP/IP, and waiting for a
delayed packet costs them no processor time.

Needs Linux, root (or ``unshare -r``) and ``ip``.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 9000
FIRST = 11
SUBNET = "10.77.0.0/24"


@dataclass
class Network:
    """The hosts: network namespaces, by name."""

    hosts: tuple[str, ...]


@contextmanager
def slow_network(n_hosts: int, latency_s: float, bandwidth_mbit_s: float) -> Iterator[Network]:
    """Creates `n_hosts` hosts; removes them at the end of the ``with`` block."""
    hosts = tuple(f"slow{os.getpid()}x{number}" for number in range(n_hosts))
    arguments = [sys.executable, __file__, str(latency_s), str(bandwidth_mbit_s), *hosts]
    relay = None
    try:
        for host in hosts:
            _ip("netns", "add", host)
        relay = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        if relay.stdout.readline().strip() != "ready":
            raise SystemExit("the relay did not start: root, ip and /dev/net/tun are needed")
        yield Network(hosts)
    finally:
        if relay is not None:
            relay.terminate()
            relay.wait()
        for host in hosts:
            with suppress(subprocess.CalledProcessError):
                _end_all(host)
                _ip("netns", "delete", host)


def _end_all(host: str) -> None:
    """Kills the processes of a host, because a killed mpirun leaves daemons and ranks on the other hosts."""
    for process in _ip("netns", "pids", host).split():
        with suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def _plugged_in(number: int, host: str) -> int:
    """Sets up a TUN device in the namespace of a host; returns its file descriptor."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    name = f"slow{os.getpid()}n{number}"[-15:]
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    _ip("link", "set", name, "netns", host)
    _ip("-n", host, "address", "add", f"10.77.0.{FIRST + number}/24", "dev", name)
    _ip("-n", host, "link", "set", name, "mtu", str(MTU), "txqueuelen", "10000", "up")
    _ip("-n", host, "link", "set", "lo", "up")
    subprocess.run(["ip", "netns", "exec", host, "sysctl", "-qw", "net.ipv4.tcp_slow_start_after_idle=0"], check=True)
    return tun


class Relay:
    """The switch and its cables."""

    def __init__(self, tuns: list[int], latency_s: float, bandwidth_mbit_s: float) -> None:
        self.tuns, self.latency_s, self.bytes_per_s = tuns, latency_s, bandwidth_mbit_s * 1e6 / 8
        self._up_free, self._down_free = [0.0] * len(tuns), [0.0] * len(tuns)
        self._on_the_way: list[tuple[float, int, int, bytes]] = []
        self._n = 0

    def take(self, source: int, packet: bytes) -> None:
        """Computes when a packet that has left a host arrives at the other."""
        target = packet[19] - FIRST
        if packet[0] >> 4 != 4 or not 0 <= target < len(self.tuns):
            return
        lasts_s = len(packet) / self.bytes_per_s
        sent = max(time.monotonic(), self._up_free[source]) + lasts_s
        arrives = max(sent + self.latency_s, self._down_free[target] + lasts_s)
        self._up_free[source], self._down_free[target] = sent, arrives
        heapq.heappush(self._on_the_way, (arrives, self._n, target, packet))
        self._n += 1

    def deliver(self) -> float | None:
        """Delivers packets that have arrived; returns the seconds until the next arrival, None if there is none."""
        while self._on_the_way:
            wait_s = self._on_the_way[0][0] - time.monotonic()
            if wait_s > 0:
                return wait_s
            _, _, target, packet = heapq.heappop(self._on_the_way)
            os.write(self.tuns[target], packet)
        return None

    def run(self) -> None:
        """Forwards packets until this process is killed."""
        number_of = {tun: number for number, tun in enumerate(self.tuns)}
        while True:
            for tun in select.select(self.tuns, [], [], self.deliver())[0]:
                with suppress(BlockingIOError):
                    while True:
                        self.take(number_of[tun], os.read(tun, MTU))


if __name__ == "__main__":
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    ends = [_plugged_in(number, host) for number, host in enumerate(sys.argv[3:])]
    print("ready", flush=True)
    Relay(ends, float(sys.argv[1]), float(sys.argv[2])).run()
