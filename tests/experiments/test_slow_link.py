"""Parts of experiments/slow_link: the relay, on socket pairs in place of network devices, and the optimizer."""

import importlib.util
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.optional_packages import needs

FOLDER = Path(__file__).parents[2] / "experiments" / "slow_link"


def loaded(name):
    """A module of the experiment."""
    specification = importlib.util.spec_from_file_location(f"slow_link_{name}", FOLDER / f"{name}.py")
    module = sys.modules[specification.name] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


network = loaded("network")

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


@needs("torch")
def test_muon_trains_the_hidden_matrices_and_adam_the_other_arrays():
    import torch

    generator = torch.Generator().manual_seed(0)
    shapes = ((5, 4), (5,), (6, 5), (6,), (3, 6), (3,))
    mine = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    apart = [torch.nn.Parameter(one.detach().clone()) for one in mine]
    combined = loaded("muon").MuonAdam(mine, learning_rate=0.1)
    muon = torch.optim.Muon([apart[0], apart[2]], weight_decay=0, adjust_lr_fn="match_rms_adamw")
    adam = torch.optim.Adam([apart[index] for index in (1, 3, 4, 5)], eps=1e-7)
    for rate in (0.1, 0.05):
        for one, other in zip(mine, apart, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        for group in combined.param_groups + muon.param_groups + adam.param_groups:
            group["lr"] = rate
        for optimizer in (combined, muon, adam):
            optimizer.step()
    for one, other in zip(mine, apart, strict=True):
        torch.testing.assert_close(one, other)
    # a checkpoint contains the state of both
    assert {key for one in mine for key in combined.state[one]} >= {"momentum_buffer", "exp_avg"}
