"""The commands for a batch or workload system that runs the trials itself: ``ask`` and ``tell``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mpi_opt.cli.store_options import read_study as find_study
from mpi_opt.cli.store_options import show, store_url
from mpi_opt.errors import ConfigurationError

if TYPE_CHECKING:
    from mpi_opt.study.study import Study

SpaceFile = Annotated[Path, typer.Argument(metavar="SPACE.yaml", help="What to search, and how.")]
StudyName = Annotated[str | None, typer.Option(help="The study's name in the store.")]
StoreUrl = Annotated[str | None, typer.Option(help="The store, a SQLAlchemy URL.")]
Values = Annotated[list[float] | None, typer.Option(help="The figure of merit; of several, one after the other.")]
Spreads = Annotated[list[float] | None, typer.Option(help="Of the value, likewise: one standard deviation.", min=0)]


def register(app: typer.Typer) -> None:
    """Adds the commands to `app`."""
    for command in (ask, tell):
        app.command()(command)


def ask(
    space: SpaceFile,
    k: Annotated[int, typer.Option("-k", help="At most so many trials.", min=1)] = 1,
    lines: Annotated[bool, typer.Option("--lines", help="Print a line for each trial instead of a JSON list.")] = False,
    trials: Annotated[int | None, typer.Option(help="How many trials the study gets in all.", min=1)] = None,
    strategy: Annotated[str | None, typer.Option(help="bayesian, evolutionary, random, … or file.py:Class.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.", min=0)] = None,
    study: StudyName = None,
    store: StoreUrl = None,
) -> None:
    """Print what to try next as JSON, for a workload system that runs it and tells the result. Needs no MPI.

    An empty answer while trials run means that their results are needed first; otherwise that the study is over.
    """
    from mpi_opt.configuration.configuration import read_study
    from mpi_opt.configuration.plan import Plan
    from mpi_opt.study import ask_tell

    changes = {"search.trials": trials, "search.strategy": strategy, "search.seed": seed}
    configuration = read_study(space, changes | {"study": study, "store": store})
    plan = Plan.of(configuration, space.resolve().parent)
    proposals = [json.dumps(one, ensure_ascii=False) for one in ask_tell.ask(plan, k)]
    if not lines:
        show(f"[{', '.join(proposals)}]")
    elif proposals:
        show("\n".join(proposals))


def tell(
    space: Annotated[Path | None, typer.Argument(metavar="SPACE.yaml", help="The study's file, or --study.")] = None,
    number: Annotated[int | None, typer.Option(help="The trial; without it JSON is read from stdin.", min=0)] = None,
    value: Values = None,
    uncertainty: Spreads = None,
    failed: Annotated[str | None, typer.Option(help="Why the trial has no value.")] = None,
    lost: Annotated[str | None, typer.Option(help="Why the trial must be run again: ask gives it out anew.")] = None,
    study: StudyName = None,
    store: StoreUrl = None,
) -> None:
    """Record what came of trials that `ask` gave out. Needs no MPI.

    On stdin: {"number": 3, "value": 0.1}, with "uncertainty" if it is known, or {"number": 3, "failed": "why"}, or
    {"number": 3, "lost": "why"}; a list of such, or a line for each. Of several figures of merit "value" is a list, or
    an object by name.
    """
    from mpi_opt.study import ask_tell

    url, name = _place(space, study, store)
    if number is None:
        content = _from_stdin(
            {"--value": value or None, "--uncertainty": uncertainty or None, "--failed": failed, "--lost": lost}
        )
    else:
        given = {"number": number, "value": _one_or_all(value), "uncertainty": _one_or_all(uncertainty)}
        given |= {"failed": failed, "lost": lost}
        content = {key: entry for key, entry in given.items() if entry is not None}
    results = ask_tell.read_results(content, name)
    told = ask_tell.tell(url, lambda opened: find_study(opened, name, trials=False), results)
    show(json.dumps(_summary(told, [result.number for result in results]), ensure_ascii=False))


def _one_or_all(values: list[float] | None) -> float | list[float] | None:
    return None if not values else values[0] if len(values) == 1 else values


def _place(space: Path | None, study: str | None, store: str | None) -> tuple[str, str | None]:
    """The store and the study's name, from the file or the options."""
    if space is None:
        return store_url(store), study
    from mpi_opt.configuration.configuration import read_study

    configuration = read_study(space, {"study": study, "store": store})
    return configuration.store, configuration.study


def _from_stdin(options: dict[str, Any]) -> Any:
    """What stands on standard input: a JSON value, or one on each line."""
    for option, given in options.items():
        if given is not None:
            raise ConfigurationError("of which trial?", where=option, cure="add --number N")
    if sys.stdin.isatty():
        raise ConfigurationError(
            "nothing to tell", where="tell", cure="add --number N --value V, or give JSON on stdin"
        )
    text = sys.stdin.read()
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2:
            raise _invalid(error) from None
    try:
        return [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        raise _invalid(error) from None


def _invalid(error: json.JSONDecodeError) -> ConfigurationError:
    found = error.doc.strip().replace("\n", " ")[:60]
    cure = 'write {"number": 3, "value": 0.1}, a list of such, or a line for each'
    return ConfigurationError(f"not JSON: {error.msg} in {found!r}", where="stdin", cure=cure)


def _summary(study: Study, told: list[int]) -> dict[str, Any]:
    """The state of the study, for a program to read."""
    best = study.record.best
    return {
        "study": study.name,
        "told": told,
        "trials": study.record.counts,
        "best": None
        if best is None
        else {"number": best.number, "figure_of_merit": best.figure_of_merit, "parameters": best.parameters},
    } | ({"pareto": [trial.number for trial in study.pareto()]} if study.merits.are_several else {})
