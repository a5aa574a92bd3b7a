"""The live page: read-only, only on this machine, and only with the token."""

from __future__ import annotations

import http.client
import http.cookiejar
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpi_opt.core.space import Integer, Real
from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.study.study import Study
from tests.mpi_opt.store.made_up import finish, make_study, start
from tests.optional_packages import is_installed, needs

if is_installed("optuna_dashboard"):
    from mpi_opt.views.page import dashboard

pytestmark = needs("optuna_dashboard")


@pytest.fixture
def served(digits_file: Path) -> Iterator[dashboard.Dashboard]:
    page = dashboard.Dashboard(str(digits_file), "digits", port=0)
    yield page
    page.close()


def visitor(page: dashboard.Dashboard | None = None) -> urllib.request.OpenerDirector:
    """A browser with cookies; if `page` is given, it has already sent the token."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    if page is not None:
        opener.open(page.url, timeout=10).read()
    return opener


def test_copy_has_the_same_trials(digits_file: Path, digits: Study) -> None:
    with Store.open(str(digits_file), read_only=True) as store:
        copy = dashboard.LiveCopy(store, "digits")
    trials = copy.storage.get_all_trials(copy.study_id)
    assert [trial.number for trial in trials] == [trial.number for trial in digits.trials]
    for theirs, ours in zip(trials, digits.trials, strict=True):
        assert theirs.params == ours.parameters
        assert theirs.state == dashboard.STATES[ours.state]
        assert theirs.value == ours.figure_of_merit
    assert len(trials[digits.best.number].intermediate_values) == 12


def test_copy_follows_the_search(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as store:
        study = make_study(store, n_trials=8)
        copy = dashboard.LiveCopy(store, "digits")
        point = store.trials(study.id)[0].parameters
        store.start(study.id, [start(8, point), start(9, point)])
        copy.update()
        states = [trial.state.name for trial in copy.storage.get_all_trials(copy.study_id)]
        assert states[8:] == ["RUNNING", "RUNNING"]
        store.finish(study.id, [finish(9, 0.001)])
        store.start(study.id, [start(10, point)])
        store.finish(study.id, [finish(10, None, state="failed")])
        copy.update()
        copy.update()
    trials = copy.storage.get_all_trials(copy.study_id)
    assert [trial.state.name for trial in trials[8:]] == ["RUNNING", "COMPLETE", "FAIL"]
    assert copy.storage.get_best_trial(copy.study_id).number == 9


def test_page_follows_a_search_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "INTERVAL_S", 0.02)
    with Store.open(str(tmp_path / "a.db")) as store:
        study = make_study(store, n_trials=4)
        page = dashboard.Dashboard(str(tmp_path / "a.db"), "digits", port=0)
        store.start(study.id, [start(4, store.trials(study.id)[0].parameters)])
        store.finish(study.id, [finish(4, -1.0)])
        deadline = time.monotonic() + 20
        while page.copy.storage.get_best_trial(page.copy.study_id).number != 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert page.copy.storage.get_best_trial(page.copy.study_id).number == 4
        page.close()


def test_copy_reads_only_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def changed_trials(store: Store, study_id: int, n_ended: int) -> tuple[list, int]:
        found = CHANGED_TRIALS(store, study_id, n_ended)
        read.append(len(found[0]))
        return found

    with Store.open(str(tmp_path / "a.db")) as store:
        study = make_study(store, n_trials=40)
        point = store.trials(study.id, numbers=[0])[0].parameters
        monkeypatch.setattr(Store, "changed_trials", changed_trials)
        copy = dashboard.LiveCopy(store, "digits")
        for method in ("trials", "study"):
            monkeypatch.setattr(Store, method, None)
        copy.update()
        store.start(study.id, [start(40, point), start(41, point)])
        copy.update()
        store.finish(study.id, [finish(41, 0.5)])
        copy.update()
        copy.update()
    assert read == [40, 0, 2, 2, 1]
    states = [trial.state.name for trial in copy.storage.get_all_trials(copy.study_id)]
    assert states[40:] == ["RUNNING", "COMPLETE"]


def test_page_shows_why_it_cannot_be_updated_and_continues_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "INTERVAL_S", 0.02)
    said: list[str] = []
    with Store.open(str(tmp_path / "a.db")) as store:
        study = make_study(store, n_trials=4)
        page = dashboard.Dashboard(str(tmp_path / "a.db"), "digits", port=0, complain=said.append)

        def refuse(*_: object) -> None:
            raise RuntimeError("a mistake at http://ada:secret@host")

        monkeypatch.setattr(Store, "changed_trials", refuse)
        assert _until(lambda: len(said) == 1)
        time.sleep(0.2)
        assert len(said) == 1
        monkeypatch.setattr(Store, "changed_trials", CHANGED_TRIALS)
        assert _until(lambda: len(said) == 2)
        store.start(study.id, [start(4, store.trials(study.id)[0].parameters)])
        assert _until(lambda: len(page.copy.storage.get_all_trials(page.copy.study_id)) == 5)
        page.close()
    assert said == [
        "the page is not updated for the moment: a mistake at http://ada:***@host",
        "the page is updated again",
    ]


def test_page_follows_a_search_whose_store_was_closed_and_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a server restarts."""
    monkeypatch.setattr(dashboard, "INTERVAL_S", 0.02)
    with Store.open(str(tmp_path / "a.db")) as store:
        study = make_study(store, n_trials=4)
        page = dashboard.Dashboard(str(tmp_path / "a.db"), "digits", port=0)
        page.copy.store.close()
        store.start(study.id, [start(4, store.trials(study.id)[0].parameters)])
        assert _until(lambda: len(page.copy.storage.get_all_trials(page.copy.study_id)) == 5)
        page.close()


CHANGED_TRIALS = Store.changed_trials


def _until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_page_is_for_those_with_the_token(served: dashboard.Dashboard) -> None:
    plain = f"http://127.0.0.1:{served.port}"
    for address in (f"{plain}/", f"{plain}/api/studies", f"{plain}/?token=", f"{plain}/?token=guess"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            visitor().open(address, timeout=10)
    answer = visitor(served).open(f"{plain}/api/studies", timeout=10)
    assert json.load(answer)["study_summaries"][0]["study_name"] == "digits"


@pytest.mark.parametrize(
    "others", ["a b=1", 'user={"id": 3}', "theme[dark]=1", "é=1", "Path=/", 'q="un', "=", ";;", "name"]
)
def test_cookies_of_other_programs_do_not_lock_the_owner_out(served: dashboard.Dashboard, others: str) -> None:
    opener = visitor(served)
    jar = next(h.cookiejar for h in opener.handlers if isinstance(h, urllib.request.HTTPCookieProcessor))
    (own,) = (f"{cookie.name}={cookie.value}" for cookie in jar)
    wrong = f"{own.partition('=')[0]}=guess"
    for cookies in (f"{others}; {own}", f"{own}; {others}", f"{wrong}; {others}; {own}"):
        assert status_with(served, cookies) == 200
    for cookies in (others, f"{others}; {wrong}", f"x{own}", f"{own}x"):
        assert status_with(served, cookies) == 403


def status_with(page: dashboard.Dashboard, cookies: str) -> int:
    """The status of a request with this header ``Cookie``, which is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=10)
    connection.putrequest("GET", "/api/studies")
    connection.putheader("Cookie", cookies.encode())
    connection.endheaders()
    return connection.getresponse().status


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
def test_page_is_read_only(served: dashboard.Dashboard, method: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{served.port}/api/studies/0", method=method, data=b"{}")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        visitor(served).open(request, timeout=10)


def test_page_is_served_on_this_machine_only(served: dashboard.Dashboard) -> None:
    assert served._server.server_address[0] == "127.0.0.1"
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)} - {"127.0.0.1", "::1"}
    for address in others:
        with pytest.raises(OSError), socket.create_connection((address, served.port), timeout=2):
            pass


def test_taken_port_is_reported(served: dashboard.Dashboard, digits_file: Path) -> None:
    with pytest.raises(ConfigurationError, match=str(served.port)) as caught:
        dashboard.Dashboard(str(digits_file), "digits", port=served.port)
    assert "--port 0" in caught.value.cure


def test_page_is_drawn_in_a_browser(served: dashboard.Dashboard, browser, digits: Study) -> None:
    shown = browser(served.url, budget_ms=20_000)
    assert "digits" in shown
    assert f"Best Trial (number={digits.best.number})" in shown


def test_command_prints_where_to_look_and_ends_with_ctrl_c(digits_file: Path) -> None:
    command = [sys.executable, "-m", "mpi_opt", "dashboard", "--store", str(digits_file), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        assert "http://127.0.0.1:" in lines[0] and "?token=" in lines[0]
        assert "ssh -N -L" in lines[2]
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert process.stderr.read() == ""


def test_dimensions_are_optunas() -> None:
    assert dashboard.distribution(Real(1e-4, 1, "log-uniform")).log
    assert dashboard.distribution(Integer(1, 10, step=4)).high == 9
