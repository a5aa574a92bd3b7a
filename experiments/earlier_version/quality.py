"""Compares the searches of this checkout with those of an earlier one; writes ``quality.json`` and its table.

In the folder ``experiments/search_quality``, with each of the two checkouts on PYTHONPATH in turn:

    python compare.py --problems branin,hartmann6,… --searchers bayesian,evolutionary --seeds 4 --results before.json

Then ``python experiments/earlier_version/quality.py --before before.json --now now.json`` compares the two files.
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

Results = dict[str, dict[str, dict[str, list[list[float]]]]]
"""Problem -> strategy -> seed -> [trial, regret] for each trial that changed the regret."""


def differences(before: Results, now: Results) -> dict[str, dict[str, list[float]]]:
    """Strategy -> problem -> log10 of the ratio of the final regrets, now to before, for each seed."""
    found: dict[str, dict[str, list[float]]] = {}
    for problem, by_strategy in before.items():
        for strategy, searches in by_strategy.items():
            least = SATURATION * statistics.median(steps[0][1] for steps in searches.values())
            after = now[problem][strategy]
            both = [(steps[-1][1], after[seed][-1][1]) for seed, steps in searches.items() if seed in after]
            ratios = [math.log10(max(new, least) / max(old, least)) for old, new in both]
            found.setdefault(strategy, {})[problem] = ratios
    return found


def with_error(values: list[float]) -> str:
    """The mean and its standard error."""
    return f"{statistics.mean(values):+.2f} ± {statistics.stdev(values) / math.sqrt(len(values)):.2f}"


def table(found: dict[str, dict[str, list[float]]]) -> str:
    """A row for each strategy. "–" marks a problem on which all regrets count as equal; "mean" is over the others."""
    problems = list(next(iter(found.values())))
    lines = ["| | mean | " + " | ".join(problems) + " | seeds |", "|---" * (len(problems) + 3) + "|"]
    for strategy, by_problem in found.items():
        cells = [with_error(by_problem[problem]) if any(by_problem[problem]) else "–" for problem in problems]
        together = with_error([one for ratios in by_problem.values() if any(ratios) for one in ratios])
        n_seeds = min(len(ratios) for ratios in by_problem.values())
        lines.append(f"| `{strategy}` | {together} | {' | '.join(cells)} | {n_seeds} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="results of the earlier version")
    parser.add_argument("--now", type=Path, help="results of the present version")
    options = parser.parse_args()
    file = HERE / "quality.json"
    if options.before:
        results = [json.loads(path.read_text()) for path in (options.before, options.now)]
        file.write_text(json.dumps(differences(*results), indent=1) + "\n")
    print(table(json.loads(file.read_text())))


if __name__ == "__main__":
    main()
