"""The relay of experiments/slow_link, on socket pairs in place of network devices."""

import importlib.util
import socket
import sys
import time
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "experiments" / "slow_link" / "network.py"
specification = importlib.util.spec_from_file_location("slow_link_network", FILE)
network = sys.modules["slow_link_network"] = importlib.util.module_from_spec(specification)
specification.loader.exec_module(network)

LATENCY_S, MBIT_S = 0.05, 1.0  # a packet of 1250 bytes lasts 10 ms


def packet(to: int, mark: int) -> bytes:
    """An IPv4 packet of 1250 bytes to a host."""
    header = bytearray(20)
    header[0], header[16:20] = 0x45, bytes((10, 77, 0, network.FIRST + to))
    return bytes(header) + bytes([mark]) * 1230


@pytest.fixture
def hosts():
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(3)]
    yield [inner for inner, _ in pairs], network.Relay([outer.fileno() for _, outer in pairs], LATENCY_S, MBIT_S)
    for pair in pairs:
        for end in pair:
            end.close()


def arrivals(relay, host, n):
    """Marks and times, from now on, of the next packets of a host."""
    started, found = time.monotonic(), []
    host.setblocking(False)
    while len(found) < n:
        time.sleep(min(relay.deliver() or 0.001, 0.001))
        try:
            found.append((host.recv(9000)[20], time.monotonic() - started))
        except BlockingIOError:
            assert time.monotonic() - started < 5
    return found


def test_a_packet_takes_the_latency_and_its_own_length(hosts):
    inner, relay = hosts
    relay.take(0, packet(1, 7))
    [(mark, after_s)] = arrivals(relay, inner[1], 1)
    assert mark == 7
    assert after_s >= 0.058


def test_a_cable_carries_one_packet_after_the_other(hosts):
    inner, relay = hosts
    for mark in range(4):
        relay.take(0, packet(1, mark))
    found = arrivals(relay, inner[1], 4)
    assert [mark for mark, _ in found] == [0, 1, 2, 3]
    assert found[3][1] >= LATENCY_S + 4 * 0.01 - 0.002


def test_two_senders_share_the_cable_of_the_receiver(hosts):
    inner, relay = hosts
    relay.take(0, packet(2, 0))
    relay.take(1, packet(2, 1))
    found = arrivals(relay, inner[2], 2)
    assert found[1][1] >= LATENCY_S + 2 * 0.01 - 0.002


@pytest.mark.timing
def test_both_directions_of_a_cable_are_free_for_each_other(hosts):
    inner, relay = hosts
    for _ in range(20):
        relay.take(0, packet(1, 0))
    relay.take(1, packet(0, 1))
    [(_, after_s)] = arrivals(relay, inner[0], 1)
    assert after_s < LATENCY_S + 10 * 0.01


def test_packets_without_a_receiver_are_dropped(hosts):
    _, relay = hosts
    relay.take(0, packet(9, 0))
    relay.take(0, b"\x60" + packet(1, 0)[1:])
    assert relay.deliver() is None
