"""The command ``hint``: steers a running or stopped study."""

from __future__ import annotations

from typing import Annotated

import typer

from mpi_opt.cli.store_options import StoreUrl, StudyName, show, store_url


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

    show("\n".join(retried(recorded)))
