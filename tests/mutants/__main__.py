"""``python -m tests.mutants``: which wrong changes do the tests notice?

Entries that no longer match the source are listed first and are not run.

Exit status 0: at least 90 % are noticed, and the list gives a reason for each of the others; 1: fewer, or an entry does
not match; 2: the tests cannot be run, or fail without any change.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutants.mutant import ROOT, Mutant, StaleMutant, read_mutants, stale_mutants
from tests.mutants.runner import UNNOTICED, CannotRun, Result, Results, run_mutants

RESULTS = ROOT / "build" / "mutants.jsonl"
REQUIRED = 0.9


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _parser().parse_args(arguments)
    listed = read_mutants()
    stale = stale_mutants(listed)
    if stale:
        print(*stale.values(), f"{len(stale)} entries do not match the source", sep="\n", file=sys.stderr)
    mutants = [mutant for mutant in listed if mutant not in stale]
    chosen = [mutant for mutant in mutants if all(word in str(mutant) for word in options.only)]
    print(f"{len(chosen)} of {len(mutants)} mutants; results are kept in {RESULTS.relative_to(ROOT)}", flush=True)
    if options.list:
        print(*chosen, sep="\n")
        return int(bool(stale))
    if options.again:
        RESULTS.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        try:
            found = run_mutants(chosen, Results(RESULTS), _report, n_jobs=options.jobs, scratch=Path(scratch))
        except (StaleMutant, CannotRun) as error:
            print(error, file=sys.stderr)
            return 2
    return max(_summary(found), int(bool(stale)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("only", nargs="*", help="run only mutants whose file or description contains all these words")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="copies of the project tested at the same time")
    parser.add_argument("--again", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--list", action="store_true", help="check the list against the source, print it, run nothing")
    return parser


def _report(mutant: Mutant, result: Result) -> None:
    print(f"{result.outcome:<10} {result.seconds:6.1f} s  {mutant}", flush=True)


def _summary(found: list[tuple[Mutant, Result]]) -> int:
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
