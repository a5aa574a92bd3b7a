"""The live page: read-only, only on this machine, and only with the token."""

from __future__ import annotations

import http.client
import http.cookiejar
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpi_opt.errors import ConfigurationError
from mpi_opt.store import Store
from mpi_opt.study.study import Study
from mpi_opt.views.page import dashboard
from tests.mpi_opt.store.made_up import finish, make_study, start


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


def test_page_follows_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "INTERVAL_S", 0.0)
    with Store.open(str(tmp_path / "a.db")) as store:
        study = make_study(store, n_trials=4)
        page = dashboard.Dashboard(str(tmp_path / "a.db"), "digits", port=0)
        opener = visitor(page)
        store.start(study.id, [start(4, store.trials(study.id)[0].parameters)])
        store.finish(study.id, [finish(4, -1.0)])
        answer = opener.open(f"http://127.0.0.1:{page.port}/", timeout=20)
        assert answer.headers["Refresh"] == "0"
        assert "(trial 4)" in answer.read().decode()
        page.close()


def test_a_report_is_written_once_in_an_interval(served: dashboard.Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "report", None)
    assert "digits" in visitor(served).open(f"http://127.0.0.1:{served.port}/", timeout=10).read().decode()


def test_page_says_why_it_is_not_shown_and_continues_afterwards(
    served: dashboard.Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener, address = visitor(served), f"http://127.0.0.1:{served.port}/"
    monkeypatch.setattr(dashboard, "INTERVAL_S", 0.0)

    def refuse(*_: object) -> None:
        raise RuntimeError("a mistake at http://ada:secret@host")

    with monkeypatch.context() as changed:
        changed.setattr(dashboard, "report", refuse)
        with pytest.raises(urllib.error.HTTPError, match="503") as caught:
            opener.open(address, timeout=10)
        assert caught.value.read().decode() == "for the moment: a mistake at http://ada:***@host"
        assert caught.value.headers["Refresh"] == "0"
    assert opener.open(address, timeout=10).status == 200


def test_page_is_for_those_with_the_token(served: dashboard.Dashboard) -> None:
    plain = f"http://127.0.0.1:{served.port}"
    for address in (f"{plain}/", f"{plain}/page", f"{plain}/?token=", f"{plain}/?token=guess"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            visitor().open(address, timeout=10)
    assert "<h1>digits</h1>" in visitor(served).open(plain, timeout=10).read().decode()


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
    connection.putrequest("GET", "/")
    connection.putheader("Cookie", cookies.encode())
    connection.endheaders()
    return connection.getresponse().status


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
def test_page_is_read_only(served: dashboard.Dashboard, method: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{served.port}/", method=method, data=b"{}")
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
    shown = browser(served.url, budget_ms=5_000)  # less than until it is loaded again
    assert "digits" in shown
    assert f"(trial {digits.best.number})" in shown


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
