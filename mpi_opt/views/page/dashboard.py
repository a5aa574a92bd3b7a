"""A live page in the browser: Optuna Dashboard with a copy of the study, which is updated while the search runs.

The copy is in memory; the store is only read. The page is served on 127.0.0.1 to browsers that have the token.
"""

from __future__ import annotations

import getpass
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from optuna_dashboard import wsgi

from mpi_opt.core.space import Categorical, Dimension, Integer, Real
from mpi_opt.core.trial import FINISHED, TrialRecord
from mpi_opt.errors import ConfigurationError, StoreError, without_passwords
from mpi_opt.store import Store
from mpi_opt.store.errors import StoreNotReadyError
from mpi_opt.study.reading import read_record
from mpi_opt.views import series

HOST = "127.0.0.1"
INTERVAL_S = 2.0
"""The interval at which the copy is updated, in seconds."""

CHUNK = 5000
"""The number of trials whose curves are read at once."""

STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class LiveCopy:
    """A copy of a study as an Optuna study in memory, with the same numbers of trials.

    Attributes:
        store: Open for reading; may be replaced by a new connection.
        storage: The copy.
        study_id: The key of the study in `storage`.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.storage = store, InMemoryStorage()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = read_record(store, name)
        figures = self._study.figures_of_merit
        directions = [StudyDirection[direction.upper()] for direction in figures.directions]
        self.study_id = self.storage.create_new_study(directions, study_name=name)
        names = list(figures.names) if figures.are_several else [series.main_figure_name(self._study)]
        self.storage.set_study_system_attr(self.study_id, "study:metric_names", names)
        self._distributions = {key: distribution(dimension) for key, dimension in self._study.space.items()}
        self._ids: dict[int, int] = {}  # number of a trial -> its id in Optuna
        self._ended: set[int] = set()
        self._n_ended = 0
        self.update()

    def update(self) -> None:
        """Copies the trials that have started or ended since the last call, and reads only these."""
        changed, n_ended = self.store.changed_trials(self._study.id, self._n_ended)
        fresh = [trial for trial in changed if trial.number not in self._ended]
        for first in range(0, len(fresh), CHUNK):
            chunk = fresh[first : first + CHUNK]
            curves = self._curves([trial.number for trial in chunk if trial.state in FINISHED])
            for trial in chunk:
                self._copy(trial, curves.get(trial.number, {}))
        self._n_ended = n_ended

    def _curves(self, numbers: Sequence[int]) -> dict[int, dict[int, float]]:
        """Trial number -> epoch -> value of the main metric, for the trials `numbers`."""
        means = series.mean_curves(self.store.curves(self._study.id, numbers)) if numbers else {}
        return means.get(series.main_metric(self._study, means) or "", {})

    def _copy(self, trial: TrialRecord, curve: dict[int, float]) -> None:
        if trial.number not in self._ids:
            self._ids[trial.number] = self.storage.create_new_trial(self.study_id, self._frozen(trial, curve))
        elif trial.state in FINISHED:
            self._end(trial, curve)
        if trial.state in FINISHED:
            self._ended.add(trial.number)

    def _end(self, trial: TrialRecord, curve: dict[int, float]) -> None:
        """Completes a trial that is running in the copy."""
        key = self._ids[trial.number]
        for epoch, value in curve.items():
            self.storage.set_trial_intermediate_value(key, epoch, value)
        for name, value in _attributes(trial).items():
            self.storage.set_trial_user_attr(key, name, value)
        self.storage.set_trial_state_values(key, STATES[trial.state], _values(trial))

    def _frozen(self, trial: TrialRecord, curve: dict[int, float]) -> FrozenTrial:
        return FrozenTrial(
            number=trial.number,
            state=STATES.get(trial.state, TrialState.RUNNING),
            value=None,
            values=_values(trial),
            datetime_start=series.local_time(trial.started_at),
            datetime_complete=series.local_time(trial.finished_at),
            params=dict(trial.parameters),
            distributions={name: self._distributions[name] for name in trial.parameters},
            user_attrs=_attributes(trial),
            system_attrs={},
            intermediate_values=curve,
            trial_id=-1,
        )


def _values(trial: TrialRecord) -> list[float] | None:
    """All figures of merit in the order of the study; None if the trial has none."""
    return list(trial.figures_of_merit.values()) or (None if trial.figure_of_merit is None else [trial.figure_of_merit])


def _attributes(trial: TrialRecord) -> dict[str, Any]:
    names = ("uncertainty", "duration_s", "attempts", "error")
    return {name: getattr(trial, name) for name in names if getattr(trial, name) is not None}


def distribution(dimension: Dimension) -> BaseDistribution:
    """Converts a dimension to a distribution of Optuna."""
    if isinstance(dimension, Categorical):
        return CategoricalDistribution(dimension.categories)
    assert isinstance(dimension, Real | Integer), dimension
    is_log = dimension.prior == "log-uniform"
    if isinstance(dimension, Integer):
        high = dimension.low + int(dimension.size - 1) * dimension.step
        return IntDistribution(dimension.low, high, log=is_log, step=1 if is_log else dimension.step)
    return FloatDistribution(dimension.low, dimension.high, log=is_log)


def token_protected(application: Application, token: str, cookie: str, first_page: str) -> Application:
    """Restricts a WSGI application to reading, and to visitors with the token.

    A visitor whose URL has the token gets it as a cookie and is redirected to `first_page`.
    """

    def protected(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        given = parse_qs(environ.get("QUERY_STRING", "")).get("token", [""])[0]
        if secrets.compare_digest(given.encode(), token.encode()):
            kept = f"{cookie}={token}; Path=/; HttpOnly; SameSite=Strict"
            start_response("303 See Other", [("Location", first_page), ("Set-Cookie", kept), ("Content-Length", "0")])
            return [b""]
        cookies = environ.pop("HTTP_COOKIE", "")  # the application needs none, and could fail on those of others
        if not any(secrets.compare_digest(value.encode(), token.encode()) for value in values_of(cookie, cookies)):
            return _refuse("403 Forbidden", "open the address that `mpi-opt dashboard` printed", start_response)
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _refuse("405 Method Not Allowed", "this page cannot be changed", start_response)
        return application(environ, start_response)

    return protected


def values_of(name: str, header: str) -> list[str]:
    """The values of the cookie `name` in a header ``Cookie``.

    Browsers send one port the cookies of all programs on the host. `http.cookies` refuses the whole header, or
    raises, if one of them has a character that RFC 6265 forbids.
    """
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return [value for key, _, value in pairs if key == name]


def _refuse(status: str, reason: str, start_response: Callable[..., Any]) -> list[bytes]:
    text = f"{status}: {reason}\n".encode()
    start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
    return [text]


def _print_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


class Dashboard:
    """Serves the page from its creation until `close`.

    Args:
        store: The URL of the store.
        name: The name of the study.
        port: A port of 127.0.0.1; 0 for any free port.
        complain: Receives one line when the page can no longer be updated, and when it can again.

    Raises:
        StoreError: There is no such store or study.
        ConfigurationError: The port is in use or not permitted.
    """

    def __init__(
        self, store: str, name: str, port: int = 8080, complain: Callable[[str], None] = _print_to_stderr
    ) -> None:
        self._url, self._complain = store, complain
        self.copy = LiveCopy(Store.open(store, read_only=True), name)
        self.token = secrets.token_urlsafe(16)
        page = f"/dashboard/studies/{self.copy.study_id}"
        application = token_protected(wsgi(self.copy.storage), self.token, f"mpi-opt-{secrets.token_hex(4)}", page)
        try:
            self._server = make_server(HOST, port, application, _Server, _Quiet)
        except OSError as error:
            self.copy.store.close()
            raise ConfigurationError(f"{error.strerror}: {HOST}:{port}", where="--port", cure="--port 0") from None
        self.port = self._server.server_port
        self._is_closing = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._server.serve_forever, self._follow)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def url(self) -> str:
        """The address to open in the browser."""
        return f"http://{HOST}:{self.port}/?token={self.token}"

    @property
    def tunnel(self) -> str:
        """The command that makes the page reachable from another machine."""
        return f"ssh -N -L {self.port}:{HOST}:{self.port} {getpass.getuser()}@{socket.gethostname()}"

    def wait(self) -> None:
        """Serves until interrupted."""
        self._is_closing.wait()

    def close(self) -> None:
        """Stops the server."""
        self._is_closing.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()
        self.copy.store.close()

    def _follow(self) -> None:
        """Updates the copy until the page is closed; continues after errors of the store."""
        problem = ""
        while not self._is_closing.wait(INTERVAL_S):
            before, problem = problem, self._problem_of_updating()
            if problem and problem != before:
                self._complain(f"the page is not updated for the moment: {problem}")
            elif before and not problem:
                self._complain("the page is updated again")

    def _problem_of_updating(self) -> str:
        """Updates the copy; returns the reason if that fails."""
        try:
            self.copy.update()
        except StoreNotReadyError:  # a lock, or a server that restarts: the next call tries again
            return ""
        except Exception as error:  # noqa: BLE001 - the thread must continue: the next call may succeed
            self._reconnect()
            return without_passwords(str(error)) or type(error).__name__
        return ""

    def _reconnect(self) -> None:
        with suppress(StoreError):
            store = Store.open(self._url, read_only=True)
            self.copy.store.close()
            self.copy.store = store
