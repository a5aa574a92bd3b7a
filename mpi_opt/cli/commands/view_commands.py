"""The commands ``plot``, ``report`` and ``dashboard``, which import the libraries for drawing when they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mpi_learn.settings.paths import file_name
from mpi_opt.cli.store_options import StoreUrl, StudyName, store_url
from mpi_opt.errors import ConfigurationError

if TYPE_CHECKING:
    from mpi_opt.study.study import Study

Kind = Literal["history", "parallel", "slice", "contour", "importance", "timeline", "curves", "pareto"]


def plot(
    kind: Annotated[Kind, typer.Argument(help="Kind of figure.")],
    study: StudyName = None,
    store: StoreUrl = None,
    output: Annotated[Path | None, typer.Option("-o", help="FILE.png, .svg or .pdf; default: STUDY-KIND.png.")] = None,
    x: Annotated[
        str | None, typer.Option("--x", help="Horizontal axis. contour: a hyperparameter; pareto: a figure of merit.")
    ] = None,
    y: Annotated[str | None, typer.Option("--y", help="Vertical axis of contour or pareto.")] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="Metric of curves.")] = None,
) -> None:
    """Draw a figure of a study."""
    chosen = _study(store, study)
    with needing("matplotlib", "plots"):
        from mpi_opt.views.figures import plots
    options = {name: value for name, value in (("x", x), ("y", y), ("metric", metric)) if value is not None}
    draw = plots.KINDS[kind]
    for name in options:
        if name not in signature(draw).parameters:
            raise ConfigurationError(f"{kind} has no such option", where=f"--{name}", cure="mpi-opt plot --help")
    path = output or Path(f"{file_name(chosen.name)}-{kind}.png")
    plots.save(draw(chosen, **options), path)
    print(path)


def report(
    study: StudyName = None,
    store: StoreUrl = None,
    output: Annotated[Path | None, typer.Option("-o", help="FILE.html; default: STUDY.html.")] = None,
) -> None:
    """Write a report of a study: one interactive page that opens offline."""
    chosen = _study(store, study)
    from mpi_opt.views.page.report import save_report

    path = output or Path(f"{file_name(chosen.name)}.html")
    save_report(chosen, path)
    print(path)


def dashboard(
    study: StudyName = None,
    store: StoreUrl = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port of the page; 0 for any free port.")
    ] = 8080,
) -> None:
    """Serve a live page of a study on 127.0.0.1, also while a search runs it; Ctrl-C ends the command."""
    from mpi_opt.store import Store
    from mpi_opt.study.reading import read_record
    from mpi_opt.views.page.dashboard import Dashboard

    with Store.open(store_url(store), read_only=True) as opened:
        address, name = opened.address, read_record(opened, study).name
    served = Dashboard(address, name, port)
    print(
        f"open      {served.url}\nfrom your own machine first run\n          {served.tunnel}\nCtrl-C ends it",
        flush=True,
    )
    try:
        served.wait()
    except KeyboardInterrupt:
        print()
    finally:
        served.close()


def _study(store: str | None, name: str | None) -> Study:
    from mpi_opt.store import Store
    from mpi_opt.study.study import Study

    with Store.open(store_url(store), read_only=True) as opened:
        return Study.read(opened, name)


@contextmanager
def needing(package: str, extra: str) -> Iterator[None]:
    """Explains a failed import in the block: `package` is installed with the extra `extra`."""
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(f"this needs {package}: {error}", cure=f"pip install mpi-opt[{extra}]") from None
