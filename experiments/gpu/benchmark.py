"""Samples per second of one rank on a GPU: `mpi_learn.train` and plain loops of PyTorch, in turns.

Also counts the copies between GPU and host in ten steps, in processes of their own. See ``README.md``.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import subprocess
import sys
import time
from datetime import date
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "common")]

import models  # noqa: E402 - found through sys.path
import numpy as np  # noqa: E402
import torch  # noqa: E402
from markdown_tables import markdown_table, with_quartiles  # noqa: E402
from mpi4py import MPI  # noqa: E402

from mpi_learn import train  # noqa: E402
from mpi_learn.data.samples.batches import Dataset  # noqa: E402
from mpi_learn.data.samples.stored_samples import Samples  # noqa: E402

BATCH_SIZES = {"mlp": 512, "cnn": 256}
RATE = 1e-3
EPOCHS = 3
"""Epochs of a turn; the first one is not counted."""
FIRST_STEP, N_STEPS = 5, 10
"""The profile begins after some steps, and has these steps."""


def ours(name, x, y, options):
    """Samples per second of `mpi_learn.train`."""
    speeds, none = [], slice(0, 0)
    data = Dataset(Samples((x,), (y,)), Samples((x[none],), (y[none],)))
    configuration = {
        "model": f"{HERE / 'models.py'}:{name}",
        "loss": "cross_entropy",
        "optimizer": {"name": "adam", "learning_rate": RATE},
        "batch_size": BATCH_SIZES[name],
        "epochs": EPOCHS,
    }
    record = lambda report: speeds.append(report.samples_per_second)  # noqa: E731
    train(configuration | options, MPI.COMM_SELF, data=data, progress=record)
    return statistics.mean(speeds[1:])


def plain(name, x, y, options, *, fused=None, resident=False):
    """Samples per second of a loop as in PyTorch's tutorials, without metrics.

    Args:
        fused: The argument of `torch.optim.Adam`; None is PyTorch's default, which updates many arrays in one kernel.
        resident: Whether all samples are on the GPU.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    module, size = getattr(models, name)().to(device), BATCH_SIZES[name]
    optimizer, loss_of = torch.optim.Adam(module.parameters(), lr=RATE, fused=fused), torch.nn.CrossEntropyLoss()
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    is_mixed = options.get("precision") == "mixed_bfloat16"
    place = device if resident else torch.device("cpu")
    x, y = x.to(place), y.to(place)

    def on_device(tensor):
        if tensor.device.type == device.type:
            return tensor
        return tensor.pin_memory().to(device, non_blocking=True)

    speeds = []
    for _ in range(EPOCHS):
        begun, total = time.perf_counter(), torch.zeros((), device=device)
        order = torch.randperm(len(x)).to(place)
        for first in range(0, len(x), size):
            chosen = order[first : first + size]
            inputs, labels = on_device(x[chosen]), on_device(y[chosen])
            with torch.autocast(device.type, torch.bfloat16, enabled=is_mixed):
                loss = loss_of(module(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(chosen)
        total.item()
        speeds.append(len(x) / (time.perf_counter() - begun))
    return statistics.mean(speeds[1:])


PROGRAMS = {
    "ours": ours,
    "PyTorch, default Adam": plain,
    "PyTorch, fused Adam": partial(plain, fused=True),
    "PyTorch, fused Adam, samples on the GPU": partial(plain, fused=True, resident=True),
}


def copies_in_steps(name, x, y):
    """Kind of copy -> number in `N_STEPS` steps of `mpi_learn.train`, from a profile."""
    from mpi_learn.models.torch_.model import TorchModel

    n_calls, found, original = 0, {}, TorchModel.gradient
    has_gpu = torch.cuda.is_available()
    kinds = [torch.profiler.ProfilerActivity.CPU] + [torch.profiler.ProfilerActivity.CUDA] * has_gpu
    profile = torch.profiler.profile(activities=kinds)

    def counted(self, *arguments):
        nonlocal n_calls
        n_calls += 1
        if n_calls in (FIRST_STEP, FIRST_STEP + N_STEPS) and has_gpu:
            torch.cuda.synchronize()  # so that all work of the steps, and no other, is in the profile
        if n_calls == FIRST_STEP:
            profile.start()
        if n_calls == FIRST_STEP + N_STEPS:
            profile.stop()
            names = [event.name for event in profile.events() if event.name.startswith("Memcpy")]
            found.update({one: names.count(one) for one in sorted(set(names))})
        return original(self, *arguments)

    TorchModel.gradient = counted
    try:
        ours(name, x, y, {})
    finally:
        TorchModel.gradient = original
    return found


def print_functions(name, x, y):
    """The functions in which the host spends the time of a training, without waiting, after another training."""
    ours(name, x, y, {})
    profile = cProfile.Profile(time.thread_time)
    profile.runcall(ours, name, x, y, {})
    pstats.Stats(profile).sort_stats("tottime").print_stats(40)


def measured(name, x, y, options, rounds):
    """Program -> samples per second of each round. Each round begins with another program."""
    speeds, names = {program: [] for program in PROGRAMS}, list(PROGRAMS)
    for turn in range(rounds + 1):  # the first round is not counted: libraries choose their kernels in it
        for program in names[turn % len(names) :] + names[: turn % len(names)]:
            speed = PROGRAMS[program](name, x, y, options)
            if turn:
                speeds[program].append(round(speed))
    return speeds


def table(results):
    """The speeds and ratios as Markdown."""
    rows = []
    for label, speeds in results["speeds"].items():
        for program, values in speeds.items():
            ratios = [ours / value for ours, value in zip(speeds["ours"], values, strict=True)]
            shown = "" if program == "ours" else with_quartiles(ratios)
            rows.append([label, program, f"{statistics.median(values):,.0f}", shown])
    return markdown_table([results["machine"], "program", "samples/s", "ours over this"], rows)


def main():
    """Measures, prints a table, and writes ``results.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--samples", type=int, default=131_072)
    parser.add_argument("--output", type=Path, default=HERE / "results.json")
    parser.add_argument("--models", nargs="+", default=list(BATCH_SIZES))
    parser.add_argument("--mixed", action="store_true", help="also in bfloat16")
    parser.add_argument("--functions", metavar="MODEL", help="only print where the host spends the time of a training")
    parser.add_argument("--copies", metavar="MODEL", help="only print the copies in the steps of one model, as JSON")
    arguments = parser.parse_args()
    if arguments.copies:
        arguments.samples = BATCH_SIZES[arguments.copies] * (FIRST_STEP + N_STEPS + 2)
    generator = np.random.default_rng(0)
    x = generator.standard_normal((arguments.samples, models.WIDTH), np.float32)
    y = generator.integers(0, 10, arguments.samples)
    if arguments.copies:
        print(json.dumps(copies_in_steps(arguments.copies, x, y)))
        return
    if arguments.functions:
        print_functions(arguments.functions, x, y)
        return
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    machine = f"{device}, PyTorch {torch.__version__}, {date.today()}"
    results = {"machine": machine, "copies": {}, "speeds": {}}
    for name in arguments.models:
        command = [sys.executable, __file__, "--copies", name]
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()
        results["copies"][name] = json.loads(printed[-1]) if printed else "the profile failed"
        print(f"{name}: copies in {N_STEPS} steps: {results['copies'][name]}", flush=True)
    kinds = [("float32", {})] + [("bfloat16", {"precision": "mixed_bfloat16"})] * arguments.mixed
    for precision, options in kinds:
        for name in arguments.models:
            label = f"{name}, batches of {BATCH_SIZES[name]}, {precision}"
            results["speeds"][label] = measured(name, x, y, options, arguments.rounds)
            arguments.output.write_text(json.dumps(results, indent=1))  # kept if the time of the machine ends
            print(table(results), flush=True)


if __name__ == "__main__":
    main()
