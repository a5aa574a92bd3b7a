"""Compares the searches of this checkout with those of an earlier one; writes ``quality.json`` and its table.

In the folder ``experiments/search_quality`` of each checkout, with the checkout on PYTHONPATH:

    python compare.py --problems branin,hartmann6,… --searchers bayesian,evolutionary --seeds 4

Then ``python experiments/earlier_version/quality.py --before ../before --now .`` compares the two files of results.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path

HERE = Path(__file__).parent
SATURATION = 1e-3
"""Regrets below this part of the median regret of the first trial count as equal."""

Curves = dict[str, dict[str, dict[str, list[float]]]]
"""Problem -> strategy -> seed -> the regret after each trial."""


def differences(before: Curves, now: Curves) -> dict[str, dict[str, list[float]]]:
    """Strategy -> problem -> log10 of the ratio of the final regrets, now to before, for each seed."""
    found: dict[str, dict[str, list[float]]] = {}
    for problem, by_strategy in before.items():
        for strategy, curves in by_strategy.items():
            least = SATURATION * statistics.median(curve[0] for curve in curves.values())
            both = [(curves[seed], now[problem][strategy][seed]) for seed in curves if seed in now[problem][strategy]]
            ratios = [math.log10(max(new[-1], least) / max(old[-1], least)) for old, new in both]
            found.setdefault(strategy, {})[problem] = ratios
    return found


def with_error(values: list[float]) -> str:
    """The mean and its standard error."""
    return f"{statistics.mean(values):+.2f} ± {statistics.stdev(values) / math.sqrt(len(values)):.2f}"


def table(found: dict[str, dict[str, list[float]]]) -> str:
    """A row for each strategy; the column "mean" is over problems and seeds."""
    problems = list(next(iter(found.values())))
    lines = ["| | mean | " + " | ".join(problems) + " | seeds |", "|---" * (len(problems) + 3) + "|"]
    for strategy, by_problem in found.items():
        cells = [with_error(by_problem[problem]) for problem in problems]
        together = with_error([one for ratios in by_problem.values() for one in ratios])
        n_seeds = min(len(ratios) for ratios in by_problem.values())
        lines.append(f"| `{strategy}` | {together} | {' | '.join(cells)} | {n_seeds} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="folder of the earlier checkout")
    parser.add_argument("--now", type=Path, help="folder of the present one")
    options = parser.parse_args()
    file = HERE / "quality.json"
    if options.before:
        results = [
            json.loads((folder / "experiments/search_quality/results.json").read_text())
            for folder in (options.before, options.now)
        ]
        file.write_text(json.dumps(differences(*results), indent=1) + "\n")
    print(table(json.loads(file.read_text())))


if __name__ == "__main__":
    main()
