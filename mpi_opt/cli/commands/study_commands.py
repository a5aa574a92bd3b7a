"""Commands around a study: ``new``, ``status``, ``hint``, and ``ask`` and ``tell`` for workload systems."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from dataclasses import asdict
from importlib import resources
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mpi_learn.settings.paths import write_whole
from mpi_opt.cli.store_options import (
    MAX_TRIAL_NUMBER,
    Changes,
    SpaceFile,
    StoreUrl,
    StudyName,
    overriding,
    store_url,
)
from mpi_opt.errors import ConfigurationError

if TYPE_CHECKING:
    from mpi_opt.store.records import StudyRecord


Values = Annotated[list[float] | None, typer.Option(help="Figure of merit; with several, one --value each, in order.")]
Uncertainties = Annotated[list[float] | None, typer.Option(help="Standard deviation of each value.", min=0)]


@overriding
def ask(
    space: SpaceFile,
    changes: Changes,
    k: Annotated[int, typer.Option("-k", help="Maximum number of trials.", min=1)] = 1,
    lines: Annotated[bool, typer.Option("--lines", help="Print one line per trial instead of a JSON list.")] = False,
) -> None:
    """Print the next trials as JSON, for a workload system that runs them and calls `mpi-opt tell`. Needs no MPI.

    An empty list means that the study is finished or that the strategy needs the results of running trials first.
    """
    from mpi_learn.job.started_by import typed_command
    from mpi_opt.configuration.plan import Plan
    from mpi_opt.configuration.read_study import read_study
    from mpi_opt.study.asking import ask_tell

    plan = Plan(read_study(space, changes), space.resolve().parent, command=typed_command())
    proposals = [json.dumps(proposal, ensure_ascii=False) for proposal in ask_tell.ask(plan, k, _note)]
    if not lines:
        print(f"[{', '.join(proposals)}]")
    elif proposals:
        print("\n".join(proposals))


def _note(text: str) -> None:
    """Shows a message on stderr: the proposals are on stdout."""
    print(f"mpi-opt: {text}", file=sys.stderr)


def tell(
    space: Annotated[
        Path | None,
        typer.Argument(metavar="SPACE.yaml", help="Configuration of the study; without it, --store and --study."),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option(help="Number of the trial; without it, JSON is read from stdin.", min=0, max=MAX_TRIAL_NUMBER),
    ] = None,
    value: Values = None,
    uncertainty: Uncertainties = None,
    failed: Annotated[str | None, typer.Option(help="Reason of the failure, instead of a value.")] = None,
    lost: Annotated[
        str | None, typer.Option(help="Reason why the trial is lost; `mpi-opt ask` prints it again.")
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Name of the study; default: that of SPACE.yaml, or the only study.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="SQLAlchemy URL or file; default: that of SPACE.yaml, $MPI_OPT_STORE, or the only *.db file here."
        ),
    ] = None,
) -> None:
    """Record the results of trials that `mpi-opt ask` has printed. Needs no MPI.

    On stdin: {"number": 3, "value": 0.1}, with an optional "uncertainty", or {"number": 3, "failed": "why"}, or
    {"number": 3, "lost": "why"}; a list of these, or one per line. With several figures of merit "value" is a list, or
    an object by name.
    """
    from mpi_opt.study.asking import ask_tell
    from mpi_opt.study.asking.external_results import read_results

    url, name = _store_and_study(space, study, store)
    if number is None:
        content = _from_stdin(
            {"--value": value or None, "--uncertainty": uncertainty or None, "--failed": failed, "--lost": lost}
        )
    else:
        given: dict[str, Any] = {"number": number, "failed": failed, "lost": lost}
        given |= {"value": _single_or_list(value), "uncertainty": _single_or_list(uncertainty)}
        content = {key: entry for key, entry in given.items() if entry is not None}
    results = read_results(content)
    updated, front = ask_tell.tell(url, name, results)
    summary = _summary(updated, [result.number for result in results])
    if updated.figures_of_merit.are_several:
        summary["pareto"] = [trial.number for trial in front]
    print(json.dumps(summary, ensure_ascii=False))


def _single_or_list(values: list[float] | None) -> float | list[float] | None:
    return None if not values else values[0] if len(values) == 1 else values


def _store_and_study(space: Path | None, study: str | None, store: str | None) -> tuple[str, str | None]:
    """The store and the study's name, from the file or the options."""
    if space is None:
        return store_url(store), study
    from mpi_opt.configuration.read_study import read_study

    configuration = read_study(space, {"study": study, "store": store})
    return configuration.store, configuration.study


def _from_stdin(options: dict[str, object]) -> object:
    """The content of standard input: a JSON value, or one per line."""
    for option, given in options.items():
        if given is not None:
            raise ConfigurationError("the number of the trial is missing", where=option, cure="add --number N")
    if sys.stdin.isatty():
        raise ConfigurationError(
            "the result is missing", where="tell", cure="add --number N --value V, or give JSON on stdin"
        )
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError:
        raise ConfigurationError("the text is not UTF-8", where="stdin", cure="write JSON in UTF-8") from None
    try:
        return _loads(text)
    except (ValueError, RecursionError) as error:
        lines = [line for line in text.split("\n") if line.strip()]  # a string of JSON may contain U+2028
        if len(lines) < 2:
            raise _invalid(error, text) from None
    try:
        return [_loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise _invalid(error, text) from None


def _loads(text: str) -> object:
    """The value of a text of JSON.

    Raises:
        ConfigurationError: An object has a key twice, of which Python would take the second.
    """

    def as_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
        for key, count in Counter(key for key, _ in pairs).items():
            if count > 1:
                raise ConfigurationError(f"the key {key!r} occurs {count} times", where="stdin", cure="write it once")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=as_object)


def _invalid(error: ValueError | RecursionError, text: str) -> ConfigurationError:
    """The error for a text that is not JSON, has a number of thousands of digits, or is nested too deeply."""
    problem, found = (error.msg, error.doc) if isinstance(error, json.JSONDecodeError) else (str(error), text)
    cure = 'write {"number": 3, "value": 0.1}, a list of these, or one per line'
    shown = found.strip().replace("\n", " ")[:60]
    return ConfigurationError(f"not JSON: {problem} in {shown!r}", where="stdin", cure=cure)


def _summary(study: StudyRecord, numbers: list[int]) -> dict[str, Any]:
    """The state of the study as JSON, with the trials `numbers` that were reported."""
    best = study.best
    return {
        "study": study.name,
        "told": numbers,
        "trials": study.counts,
        "best": None
        if best is None
        else {"number": best.number, "figure_of_merit": best.figure_of_merit, "parameters": best.parameters},
    }


def hint(
    point: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]…", help="A point to try next; with --widen also NAME.")
    ] = None,
    study: StudyName = None,
    store: StoreUrl = None,
    narrow: Annotated[
        list[str] | None, typer.Option("--narrow", metavar="NAME=LOW..HIGH", help="Range of later trials; repeatable.")
    ] = None,
    widen: Annotated[
        bool, typer.Option("--widen", help="Take narrower ranges back: of the hyperparameters NAME, or of all.")
    ] = False,
) -> None:
    """Give a study a point to try next, or narrower ranges. A running search follows it within seconds.

    Hyperparameters that are not given have their values in the best trial.
    """
    from mpi_opt.store import Store
    from mpi_opt.study.asking.ask_tell import retried
    from mpi_opt.study.hinting import record_hint
    from mpi_opt.study.reading import read_record

    url = store_url(store)
    Store.open(url, read_only=True).close()  # a wrong name must not create a store

    def recorded() -> list[str]:
        with Store.open(url) as opened:
            return record_hint(opened, read_record(opened, study), point or [], narrow or [], widen=widen)

    print("\n".join(retried(recorded)))


WATCH_S = 2.0
"""The interval between two updates with ``--watch``, in seconds."""


def status(
    study: StudyName = None,
    store: StoreUrl = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every two seconds, until the study is finished.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object, with --watch one in each line.")
    ] = False,
) -> None:
    """Print what a search does at present: trials, blocks, hosts, speed, expected end and the latest events."""
    from mpi_opt.store import Store
    from mpi_opt.store.errors import StoreNotReadyError, StoreUnreachableError
    from mpi_opt.study.status import SearchStatus
    from mpi_opt.views.text.search_summary import status_text

    url, clear = store_url(store), "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
    found: SearchStatus | None = None
    while True:
        try:
            with Store.open(url, read_only=True) as opened:
                found = SearchStatus.read(opened, study)
        except (StoreNotReadyError, StoreUnreachableError) as error:  # locked for a moment, or its server restarts
            if not watch or (found is None and isinstance(error, StoreUnreachableError)):
                raise
            print(f"mpi-opt: {error}", file=sys.stderr, flush=True)
            time.sleep(WATCH_S)
            continue
        if as_json:
            print(json.dumps(asdict(found), indent=None if watch else 1), flush=True)
        else:
            print(f"{clear if watch else ''}{status_text(found)}", flush=True)
        if not watch or found.activity == "finished":  # a search that does not run may be started again
            return
        time.sleep(WATCH_S)


Kind = Literal["training", "function"]


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the new files in the current directory, without suffix.")
    ],
    kind: Annotated[
        Kind, typer.Option("--kind", help="training: a Keras model and its data; function: any Python function.")
    ] = "training",
) -> None:
    """Write the commented files of a new study, which run without changes: NAME.yaml, NAME.py, and its data NAME.h5.

    NAME.h5 is written for `--kind training` only. Existing files are not overwritten.
    """
    for path in write_template(name, kind, Path()):
        print(f"wrote {path}")
    print(f"now run\n  mpi-opt search {name}.yaml")


def write_template(name: str, kind: Kind, folder: Path) -> list[Path]:
    """Writes the files of a new study into `folder`; returns their paths. Writes nothing if one of the files exists.

    Raises:
        ConfigurationError: `name` has other characters than letters, digits, _ and -, or begins with a digit or -, or
            one of the files exists, or NAME.py would hide a module of Python or of an installed package.
        OSError: A file cannot be written; then none is.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
        cure = "mpi-opt new jets writes jets.yaml and jets.py"
        raise ConfigurationError(
            f"expected a name that starts with a letter or _ and has only letters, digits, _ and -, found {name!r}",
            where="NAME",
            cure=cure,
        )
    templates = {folder / f"{name}.yaml": f"{kind}.yaml", folder / f"{name}.py": f"{kind}.py.txt"}
    data = [folder / f"{name}.h5"] if kind == "training" else []
    for path in (*templates, *data):
        if path.exists():
            raise ConfigurationError("the file exists already", where=str(path), cure="choose another name")
    if _is_module(name):
        raise ConfigurationError(
            f"{name} is a module of Python or of a package: programs in this folder would import {name}.py instead",
            where="NAME",
            cure=f"choose another name, such as my_{name}",
        )
    try:
        for path, template in templates.items():
            text = resources.files("mpi_opt.cli").joinpath("templates", template).read_text(encoding="utf-8")
            write_whole(path, text.replace("NAME", name))
        for path in data:
            from mpi_learn.known_data import prepare

            prepare("digits", path)
    except BaseException:
        for path in templates:  # otherwise a second try would find them
            path.unlink(missing_ok=True)
        raise
    return [*templates, *data]


def _is_module(name: str) -> bool:
    """Whether ``import NAME`` finds a module of Python or of an installed package."""
    return name in sys.stdlib_module_names or name in packages_distributions()
