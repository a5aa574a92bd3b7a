"""Measures the training speed; writes ``results.json``, the tables of the README and ``speed.png``.

    python experiments/training_speed/benchmark.py --data mnist.h5 [--models mlp cnn] [--only 'ours|ddp'] [--rounds 5]

The programs of a model are started together and take turns of one epoch (see `turns`). A new measurement replaces the
earlier one of the same program and model, so that the table can be measured in parts. ``--print`` measures nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import tempfile
import time
from pathlib import Path

from report import write_report
from turns import Program

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
SAMPLES = {"mlp": 38400, "cnn": 5120, "lstm": 7680}
ASYNCHRONOUS = ("downpour", "gem", "easgd")
RUNS = {
    f"{kind} on {ranks}": (kind, ranks, {})
    for ranks in (1, 2)
    for kind in ("ours-keras", "bare-keras", "ours-torch", "bare-torch")
}
RUNS |= {"ddp on 2": ("ddp", 2, {}), "ours-keras on 2, timeline": ("ours-keras", 2, {"trace": True})}
RUNS |= {f"bare-{framework} on 2, apart": (f"bare-{framework}", 2, {"apart": True}) for framework in ("keras", "torch")}
RUNS |= {"ours-keras on 2, bfloat16": ("ours-keras", 2, {"precision": "mixed_bfloat16"})}
RUNS |= {f"{name} on 3": ("ours-keras", 3, {"algorithm": {"name": name}}) for name in ASYNCHRONOUS}
RUNS |= {"clusters on 2": ("ours-keras", 2, {"algorithm": {"name": "clusters", "size": 1}})}


def started(name: str, model: str, data: str, n_samples: int, folder: str) -> Program:
    """The program of one run of `RUNS`."""
    kind, ranks, changes = RUNS[name]
    if "trace" in changes:
        changes = {"trace": f"{folder}/trace"}
    environment = {"APART": "1"} if "apart" in changes else {"CHANGES": json.dumps(changes)}
    return Program([kind, model, data, str(n_samples)], ranks, environment)


def session(model: str, names: list[str], arguments: argparse.Namespace) -> dict[str, dict]:
    """The measurements of the runs `names` of one model, which take turns."""
    n_samples = SAMPLES[model]
    with tempfile.TemporaryDirectory() as folder:
        programs = {}
        try:
            for name in names:  # one at a time, because each measures at its start which compiler is faster
                programs[name] = started(name, model, arguments.data, n_samples, folder)
                programs[name].wait_ready()
            began = time.perf_counter()
            for _ in range(arguments.rounds):
                for program in programs.values():
                    program.run_epoch()
            print(f"{model}: {time.perf_counter() - began:.0f} s", flush=True)
            return {name: program.end() for name, program in programs.items()}
        finally:
            for program in programs.values():
                program.stop()


def start_to_first_step(data: str, ranks: int = 4) -> dict:
    """Seconds from ``mpirun`` to the end of a first epoch of one step, and the largest rank's memory in MiB."""
    began = time.perf_counter()
    program = Program(["ours-keras", "mlp", data, str(ranks * 128)], ranks, {})
    program.wait_ready()
    seconds = time.perf_counter() - began
    program.run_epoch()
    return {"ranks": ranks, "seconds": seconds, "memory_mib": program.end()["memory_mib"]}


def timeline_off_s(n: int = 100_000) -> float:
    """Seconds per step of the spans of a timeline that is switched off."""
    from mpi_learn.training.timing.tracing import COMPUTE, Timeline

    timeline = Timeline()
    began = time.perf_counter()
    for _ in timeline.waiting(range(n)):
        with timeline.span("gradient", COMPUTE):
            pass
        with timeline.span("exchange", COMPUTE):
            pass
    return (time.perf_counter() - began) / n


def known() -> dict:
    """The results of earlier runs."""
    empty = {"machine": "", "sessions": {}}
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else empty


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="file that `mpi-learn prepare mnist --to FILE` wrote")
    parser.add_argument("--models", nargs="*", default=list(SAMPLES), choices=list(SAMPLES))
    parser.add_argument("--only", default="", help="regular expression that selects runs by name")
    parser.add_argument("--rounds", type=int, default=5, help="measured epochs of each run")
    parser.add_argument("--start", action="store_true", help="also measure start, memory of 4 ranks, and the timeline")
    parser.add_argument("--print", action="store_true", help="measure nothing, write table and picture")
    arguments = parser.parse_args()
    names = [name for name in RUNS if re.search(arguments.only, name)]
    results = known()
    if arguments.print:
        write_report(results, HERE)
        return
    results["machine"] = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    for model in arguments.models:
        found = session(model, names, arguments)
        day = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")
        results["sessions"].setdefault(model, {})
        for name, figures in found.items():
            results["sessions"][model][name] = figures | {"at": day}
            print(model, name, *(f"{speed:,.0f}" for speed in figures["samples_per_second"]), flush=True)
        RESULTS.write_text(json.dumps(results, indent=1))
    if arguments.start:
        results |= {"start": start_to_first_step(arguments.data), "timeline_off_s": timeline_off_s()}
        RESULTS.write_text(json.dumps(results, indent=1))
    write_report(results, HERE)


if __name__ == "__main__":
    main()
