"""The tables of crowd.py: regrets, ratios to the best other method, and the share of the targets that are reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

import numpy as np

from mpi_opt.strategies.make_strategy import STRATEGIES

RESOLUTION = 1e-6
"""Regrets below this part of a problem's range count as equal. The range is the median regret of one random point."""
TARGETS = 10.0 ** -np.arange(0.5, 6.25, 0.5)
"""The regrets of the profile, in units of the range."""
PARTS = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
"""The parts of the trials after which the profile is shown."""


def tables(lines: list[dict]) -> str:
    """A table for each setting, and profiles where the course of the searches is stored."""

    def setting(line: dict) -> tuple:
        return line["in_flight"], line["trials"], line["duration_s"] if line["charge"] else 0.0

    parts = []
    for (in_flight, n_trials, duration_s), group in groupby(sorted(lines, key=setting), setting):
        found = list(group)
        ended = sorted(line["ended"] for line in found)
        some = f", of which {ended[0]:,} to {ended[-1]:,} have ended" if ended[0] < n_trials else ""
        charged = f"; trials of {duration_s:g} s, with the CPU time charged" if duration_s else ""
        parts.append(f"{in_flight:,} in flight, {n_trials:,} trials{some}{charged}:\n\n{table(found)}")
        if all("steps" in line for line in found) and any(line["strategy"] == "random" for line in found):
            parts.append(f"Share of the targets reached:\n\n{profile(found)}")
    return "\n\n".join(parts)


def table(lines: list[dict]) -> str:
    """A row for each problem and a column for each method: median regret and quartiles; then ratios and times."""
    methods = sorted({line["strategy"] for line in lines}, key=_place)
    peers, ours = [m for m in methods if m not in STRATEGIES], [m for m in methods if m in STRATEGIES and m != "auto"]
    rivals = {"peer": peers, "of ours": ours} if "auto" in methods else {}
    rows = [["", *methods, *(f"auto / best {kind}" for kind in rivals)]]
    for name in _problems(lines):
        regrets = {m: [x["regret"] for x in lines if (x["problem"], x["strategy"]) == (name, m)] for m in methods}
        floor = RESOLUTION * _range(lines, name)
        ratios = [_ratio(regrets["auto"], [regrets[m] for m in group], floor) for group in rivals.values()]
        rows.append([name, *(_cell(regrets[m]) for m in methods), *ratios])
    rows.append(["seeds", *(_seeds(line["problem"] for line in lines if line["strategy"] == m) for m in methods)])
    rows[-1] += [""] * len(rivals)
    for label, key, summary, digits in (
        ("CPU ms a trial", "cpu_ms", np.median, ".2g"),
        ("longest call, ms", "longest_ms", max, ".0f"),
        ("part of the time used", "used", np.median, ".2f"),
    ):
        if key != "used" or lines[0]["charge"]:
            each = [summary([line[key] for line in lines if line["strategy"] == m]) for m in methods]
            rows.append([label, *(f"{value:{digits}}" for value in each), *[""] * len(rivals)])
    return _markdown(rows)


def profile(lines: list[dict]) -> str:
    """The mean over problems, seeds and `TARGETS` of whether a search has reached a target, after parts of its trials.

    As the runtime profiles of COCO (Hansen et al., Optim. Methods Softw. 36, 2021).
    """
    n_trials = lines[0]["trials"]
    after = [round(part * n_trials) for part in PARTS]
    rows = [["after trials", *map(str, after)]]
    ranges = {name: _range(lines, name) for name in _problems(lines)}
    for method in sorted({line["strategy"] for line in lines}, key=_place):
        by_problem = []
        for name, size in ranges.items():
            mine = [x["steps"] for x in lines if (x["problem"], x["strategy"]) == (name, method)]
            if mine:
                regrets = np.array([[_regret_after(steps, n) for n in after] for steps in mine]) / size
                by_problem.append((regrets[:, :, None] <= TARGETS).mean(axis=(0, 2)))
        rows.append([method, *(f"{share:.2f}" for share in np.mean(by_problem, axis=0))])
    return _markdown(rows)


def _seeds(problems: Iterable[str]) -> str:
    """The number of seeds of a problem, or its smallest and largest value."""
    numbers = Counter(problems).values()
    return " to ".join(str(n) for n in dict.fromkeys([min(numbers), max(numbers)]))


def _place(method: str) -> tuple[int, str]:
    """Ours first, `auto` before all."""
    return (0 if method == "auto" else 1 if method in STRATEGIES else 2), method


def _problems(lines: list[dict]) -> list[str]:
    return list(dict.fromkeys(line["problem"] for line in lines))


def _range(lines: list[dict], name: str) -> float:
    """The median regret of the first trials of `random`; 0 if it is not known."""
    first = [x["steps"][0][1] for x in lines if (x["problem"], x["strategy"]) == (name, "random") and "steps" in x]
    return float(np.median(first)) if first else 0.0


def _regret_after(steps: list[list[float]], n: int) -> float:
    return [regret for number, regret in steps if number <= n][-1]


def _ratio(mine: list[float], others: list[list[float]], floor: float) -> str:
    medians = [float(np.median(each)) for each in others if each]
    if not mine or not medians:
        return "–"
    return f"{max(float(np.median(mine)), floor) / max(min(medians), floor, 1e-300):.2g}"


def _cell(regrets: list[float]) -> str:
    if not regrets:
        return "–"
    lower, middle, upper = np.quantile(regrets, (0.25, 0.5, 0.75))
    return f"{middle:.2g} ({lower:.2g} to {upper:.2g})" if len(regrets) > 1 else f"{middle:.2g}"


def _markdown(rows: list[list[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
