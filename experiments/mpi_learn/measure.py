"""Distributed training with a master: four parts; writes `results.json`, tables and a figure.

    python experiments/mpi_learn/measure.py [--only validation adam] [--from FOLDER] [--print]
    python experiments/mpi_learn/measure.py --smoke

Run it on a quiet machine: three of the four parts measure time. A new measurement of a part replaces the earlier one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from functools import partial
from pathlib import Path

import adam
import cifar10
import input_files
import validation

HERE = Path(__file__).parent
MARK = "<!-- tables -->"
PARTS = {"validation": validation, "adam": adam, "input_files": input_files, "cifar10": cifar10}


def tables(results: dict) -> str:
    """All that was measured, as Markdown; a part that was not measured is named as such."""
    lines = []
    for name, part in PARTS.items():
        lines += [f"## {part.__doc__.splitlines()[0]}", ""]
        lines += [part.table(results[name]["found"]) if name in results else "Not yet measured.", ""]
        if name in results:
            lines += [f"Measured on {results[name]['machine']}.", ""]
    return "\n".join(lines)


def machine() -> str:
    """Where a part was measured."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some of the parts")
    parser.add_argument("--from", dest="source", type=Path, help="folder with CIFAR-10; default: it is downloaded")
    parser.add_argument("--print", action="store_true", help="only tables and picture, from results.json")
    parser.add_argument("--smoke", action="store_true", help="short runs that print their tables and write no files")
    arguments = parser.parse_args()
    file = HERE / "results.json"
    results = json.loads(file.read_text()) if file.exists() and not arguments.smoke else {}
    for name in [] if arguments.print else arguments.only:
        measure = PARTS[name].measure
        if name == "cifar10":
            measure = partial(measure, source=arguments.source)
        with tempfile.TemporaryDirectory() as work:
            found = measure(Path(work), smoke=arguments.smoke)
        results[name] = {"machine": machine(), "found": found}
        if not arguments.smoke:
            file.write_text(json.dumps(results, indent=1))
    if arguments.smoke:
        print(tables(results))
        return
    before, _, _ = (HERE / "README.md").read_text().partition(MARK)
    (HERE / "README.md").write_text(f"{before}{MARK}\n\n{tables(results)}")
    if "cifar10" in results:
        cifar10.draw(results["cifar10"]["found"], HERE / "cifar10.png")


if __name__ == "__main__":
    main()
