"""The command ``status``: what a search does at present, from its store alone."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import Annotated

import typer

from mpi_opt.cli.store_options import StoreUrl, StudyName, show, store_url

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
    from mpi_opt.store.errors import StoreNotReadyError
    from mpi_opt.study.status import SearchStatus
    from mpi_opt.views.text.search_summary import status_text

    url, clear = store_url(store), "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
    while True:
        try:
            with Store.open(url, read_only=True) as opened:
                found = SearchStatus.read(opened, study)
        except StoreNotReadyError as error:  # locked for a moment, or its server restarts
            if not watch:
                raise
            print(f"mpi-opt: {error}", file=sys.stderr, flush=True)
            time.sleep(WATCH_S)
            continue
        if as_json:
            show(json.dumps(asdict(found), indent=None if watch else 1))
        else:
            show(f"{clear if watch else ''}{status_text(found)}")
        if not watch or found.activity == "finished":  # a search that does not run may be started again
            return
        time.sleep(WATCH_S)
