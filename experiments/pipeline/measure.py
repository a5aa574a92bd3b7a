"""Memory, idle time and speed of a model in stages."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "common"))

from run_ranks import run_ranks  # noqa: E402

SLEEP_S, N_STEPS = 0.05, 3


def one(n_ranks: int, changes: Mapping[str, Any], *, shape: list[int], outputs: int, n: int) -> dict[str, Any]:
    """One training on `n_ranks` ranks."""
    wanted = {"changes": changes, "shape": shape, "outputs": outputs, "n": n}
    with tempfile.TemporaryDirectory() as folder:
        run_ranks(n_ranks, HERE / "one.py", json.dumps(wanted), folder=Path(folder))
        found: dict[str, Any] = json.loads(Path(folder, "result.json").read_text())
    return found


def memory(size: Mapping[str, int]) -> None:
    """Memory of a rank without that of the libraries, for a model that each rank builds, and for single stages."""
    print("| stages | model | memory of the ranks in training, MB | highest so far, MB |\n|---|---|---|---|")
    adam = {"optimizer": {"name": "adam", "learning_rate": 1e-4}, "batch_size": 32}
    for stages in (1, 2, 4):
        for function in ("dense", "dense_stages")[: 1 if stages == 1 else 2]:
            own = {"stages": stages} if function == "dense_stages" else {}
            changes = adam | {"model": function, "parameters": own | size}
            changes |= {"pipeline": {"stages": stages, "micro_batches": 4}}
            width = size["width"]
            found = one(stages, changes, shape=[width], outputs=width, n=64)["memory_mb"]
            now, highest = (", ".join(f"{rank[place]:,.0f}" for rank in found) for place in (0, 1))
            kind = "one Sequential" if function == "dense" else "a function per stage"
            print(f"| {stages} | {kind} | {now} | {highest} |", flush=True)


def idle(counts: list[tuple[int, int]]) -> None:
    """The idle share with stages that sleep, and the expected one."""
    print("| stages | micro-batches | schedule | idle share | expected | difference, points |")
    print("|---|---|---|---|---|---|")
    for stages, micro in counts:
        for schedule in ("gpipe", "1f1b"):
            changes = {
                "model": "sleeping_stages",
                "parameters": {"stages": stages, "seconds": SLEEP_S},
                "batch_size": 2 * micro,
                "pipeline": {"stages": stages, "micro_batches": micro, "schedule": schedule},
            }
            found = one(stages, changes, shape=[16], outputs=16, n=2 * micro * N_STEPS)
            step_s = 2 * micro / found["samples_per_s"]
            share, expected = 1 - 3 * SLEEP_S * micro / step_s, (stages - 1) / (micro + stages - 1)
            row = (stages, micro, schedule, f"{100 * share:.1f} %", f"{100 * expected:.1f} %")
            print("| " + " | ".join(map(str, (*row, f"{100 * (share - expected):+.1f}"))) + " |", flush=True)


def speed(size: Mapping[str, int], turns: int) -> None:
    """Samples per second of two ranks: two stages or two replicas, in turns, and of one process."""
    width = size["width"]
    cases = {
        "dense": ({"model": "dense", "parameters": size}, [width], width),
        "convolutional": ({"model": "convolutional"}, [1, 16, 16], 16),
    }
    print("| model | one process | two replicas | two stages | stages / replicas (turns) |\n|---|---|---|---|---|")
    for name, (model, shape, outputs) in cases.items():
        found: dict[str, list[float]] = {"one": [], "replicas": [], "stages": []}
        for _ in range(turns):
            data = {"shape": shape, "outputs": outputs, "n": 512}
            stages = {"batch_size": 128, "pipeline": {"stages": 2, "micro_batches": 8}}
            found["one"].append(one(1, model | {"batch_size": 128}, **data)["samples_per_s"])
            found["replicas"].append(one(2, model | {"batch_size": 64}, **data)["samples_per_s"])
            found["stages"].append(one(2, model | stages, **data)["samples_per_s"])
        ratios = [a / b for a, b in zip(found["stages"], found["replicas"], strict=True)]
        cells = [f"{statistics.median(values):,.0f} samples/s" for values in found.values()]
        shown = f"{statistics.median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in sorted(ratios))})"
        print(f"| {name} | {' | '.join(cells)} | {shown} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["memory", "idle", "speed"])
    parser.add_argument("--smoke", action="store_true", help="a short form")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    size = {"width": 64, "depth": 4} if options.smoke else {"width": 2048, "depth": 13}
    if "memory" in options.parts:
        memory(size)
    if "idle" in options.parts:
        idle([(2, 2)] if options.smoke else [(2, 4), (2, 8), (4, 4), (4, 8)])
    if "speed" in options.parts:
        speed(size, 1 if options.smoke else options.turns)


if __name__ == "__main__":
    main()
