"""``python -m tests.mutants``: which wrong changes do the tests notice?

The tests are those of ``make test``: tests that are marked ``thorough`` are not run.

Entries that no longer match the source are listed first and are not run. With ``--draw N``, changes at N random
places of the packages are run instead of those of the lists.

Exit status 0: at least 90 % are noticed, and a reason is given for each of the others; 1: fewer, or an entry does
not match; 2: the tests cannot be run, or fail without any change.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.mutants.drawing import Key, draw, read_argued, stale_arguments
from tests.mutants.mutant import ROOT, Change, StaleMutant, read_mutants, stale_mutants
from tests.mutants.runner import (
    NOTICED,
    SLOWER,
    START_S,
    UNNOTICED,
    CannotRun,
    Result,
    Results,
    failures_without_change,
    run_mutants,
)
from tests.mutants.selecting import CoverageMap, Selection

RESULTS = ROOT / "build" / "mutants.jsonl"
MAP = ROOT / "build" / "mutants-map.json"
REQUIRED = 0.9


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _parser().parse_args(arguments)
    listed, argued = read_mutants(), read_argued()
    stale = stale_mutants(listed)
    problems = [*stale.values(), *stale_arguments(argued)]
    if problems:
        print(*problems, f"{len(problems)} entries do not match the source", sep="\n", file=sys.stderr)
    chosen: list[Change]
    if options.draw:
        chosen = _drawn(options, argued)
    else:
        mutants = [mutant for mutant in listed if mutant not in stale]
        chosen = [mutant for mutant in mutants if all(word in str(mutant) for word in options.only)]
        print(f"{len(chosen)} of {len(mutants)} mutants; results are kept in {RESULTS.relative_to(ROOT)}", flush=True)
    if options.list:
        print(*chosen, sep="\n")
        return int(bool(problems))
    if options.again:
        RESULTS.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        try:
            found = run_mutants(chosen, Results(RESULTS), _report, n_jobs=options.jobs, scratch=Path(scratch))
            if options.draw and (failing := failures_without_change(_tests(found), ROOT, Path(scratch))):
                raise CannotRun("\n".join(["these tests also fail without a change, so the result is void:", *failing]))
        except (StaleMutant, CannotRun) as error:
            print(error, file=sys.stderr)
            return 2
    return max(_summary(found), int(bool(problems)))


def _drawn(options: argparse.Namespace, argued: dict[Key, str]) -> list[Change]:
    """The changes of ``--draw``, with their tests."""
    drawn = draw(options.draw, options.seed, ROOT, options.only)
    print(f"{len(drawn)} places, drawn with seed {options.seed}", flush=True)
    if options.list:
        return list(drawn)
    measured = CoverageMap(MAP, ROOT)
    selection = Selection(measured, ROOT, options.budget)
    near = {file for change in drawn for file in selection.nearest(change.file, options.near)}
    measured.update(only=near if options.near else None)
    found: list[Change] = []
    for change in drawn:
        stages, seconds = selection.stages(change.file, change.site.function)
        limit_s = START_S + SLOWER * seconds
        found.append(replace(change, stages=stages, limit_s=limit_s, argued=argued.get(change.key, "")))
    return found


def _tests(found: list[tuple[Change, Result]]) -> list[str]:
    """The tests that noticed a change."""
    return [result.test for _, result in found if result.outcome == NOTICED and result.test]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("only", nargs="*", help="run only mutants whose file or description contains all these words")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="copies of the project tested at the same time")
    parser.add_argument("--again", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--list", action="store_true", help="check the list against the source, print it, run nothing")
    parser.add_argument("--draw", type=int, metavar="N", help="draw N changes instead of reading the lists")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests for each drawn change")
    parser.add_argument(
        "--near", type=int, default=0, metavar="N", help="measure only N test files for each drawn module; 0: all"
    )
    return parser


def _report(mutant: Change, result: Result) -> None:
    by = f"  by {result.test}" if result.test else ""
    print(f"{result.outcome:<10} {result.seconds:6.1f} s  {mutant}{by}", flush=True)


def _summary(found: list[tuple[Change, Result]]) -> int:
    """Prints noticed and all mutants by file, and those that no test noticed; returns the exit status."""
    every = Counter(mutant.file for mutant, _ in found)
    missed = [mutant for mutant, result in found if result.outcome == UNNOTICED]
    unnoticed = Counter(mutant.file for mutant in missed)
    width = max(map(len, every), default=0)
    print()
    for file, n in every.items():
        print(f"{file:<{width}}  {n - unnoticed[file]:3} of {n:3} noticed")
    for mutant in missed:
        print(f"unnoticed: {mutant}" + (f"\n  argued: {mutant.argued}" if mutant.argued else ""))
    share = 1 - len(missed) / max(len(found), 1)
    print(f"{len(found) - len(missed)} of {len(found)} noticed ({share:.0%}); required: {REQUIRED:.0%}")
    return 0 if share >= REQUIRED and all(mutant.argued for mutant in missed) else 1


if __name__ == "__main__":
    sys.exit(main())
