"""A live page in the browser: the report of the study, written again while the search runs.

The store is only read. The page is served on 127.0.0.1 to browsers that have the token.
"""

from __future__ import annotations

import getpass
import secrets
import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mpi_opt.errors import ConfigurationError, without_passwords
from mpi_opt.store import Store
from mpi_opt.study.study import Study
from mpi_opt.views.page.report import report

HOST = "127.0.0.1"
INTERVAL_S = 10.0
"""The interval at which a browser loads the page again, in seconds."""


class Dashboard:
    """Serves the page from its creation until `close`.

    Args:
        store: The URL of the store.
        name: The name of the study.
        port: A port of 127.0.0.1; 0 for any free port.

    Raises:
        StoreError: There is no such store or study.
        ConfigurationError: The port is in use or not permitted.
    """

    def __init__(self, store: str, name: str, port: int = 8080) -> None:
        self._url, self._name = store, name
        self._lock, self._html, self._written = threading.Lock(), "", float("-inf")
        self.token, self.cookie = secrets.token_urlsafe(16), f"mpi-opt-{secrets.token_hex(4)}"
        self.html()
        try:
            self._server = ThreadingHTTPServer((HOST, port), self._handler())
        except OSError as error:
            raise ConfigurationError(f"{error.strerror}: {HOST}:{port}", where="--port", cure="--port 0") from None
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

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
        self._thread.join()

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def html(self) -> str:
        """The report; it is written again if it is older than `INTERVAL_S`."""
        with self._lock:  # several browsers share one report
            if time.monotonic() - self._written >= INTERVAL_S:
                with Store.open(self._url, read_only=True) as store:
                    self._html = report(Study.read(store, self._name))
                self._written = time.monotonic()
            return self._html

    def admits(self, cookies: str) -> bool:
        """Whether a header ``Cookie`` has the token.

        Browsers send one port the cookies of all programs on the host. `http.cookies` refuses the whole header, or
        raises, if one of them has a character that RFC 6265 forbids.
        """
        pairs = (part.strip().partition("=") for part in cookies.split(";"))
        return any(key == self.cookie and self.is_token(value) for key, _, value in pairs)

    def is_token(self, value: str) -> bool:
        """Whether a visitor has given the token; takes the same time for each wrong one."""
        return secrets.compare_digest(value.encode(errors="replace"), self.token.encode())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        dashboard = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urlsplit(self.path)
                if dashboard.is_token(parse_qs(address.query).get("token", [""])[0]):
                    kept = f"{dashboard.cookie}={dashboard.token}; Path=/; HttpOnly; SameSite=Strict"
                    self._answer(HTTPStatus.SEE_OTHER, "", {"Location": "/", "Set-Cookie": kept})
                elif not dashboard.admits(self.headers.get("Cookie", "")):
                    self._answer(HTTPStatus.FORBIDDEN, "open the address that `mpi-opt dashboard` printed")
                elif address.path != "/":
                    self._answer(HTTPStatus.NOT_FOUND, "there is one page: /")
                else:
                    again = {"Refresh": f"{INTERVAL_S:g}"}
                    try:
                        answer = HTTPStatus.OK, dashboard.html(), again | {"Content-Type": "text/html"}
                    except Exception as error:  # noqa: BLE001 - the next request may succeed
                        problem = without_passwords(str(error)) or type(error).__name__
                        answer = HTTPStatus.SERVICE_UNAVAILABLE, f"for the moment: {problem}", again
                    self._answer(*answer)

            def do_POST(self) -> None:
                self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "this page cannot be changed")

            do_PUT = do_DELETE = do_PATCH = do_POST  # noqa: N815 - names of http.server

            def _answer(self, status: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> None:
                content = text.encode()
                self.send_response(status)
                fixed = {"Content-Type": "text/plain", "Content-Length": str(len(content))}
                for key, value in (fixed | (headers or {})).items():
                    self.send_header(key, f"{value}; charset=utf-8" if key == "Content-Type" else value)
                with suppress(ConnectionError):  # the browser has gone
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
