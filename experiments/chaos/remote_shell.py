"""Runs commands on another node of a `tests.slurm.cluster`, in place of ``ssh``, of which no server is needed.

As a server: python remote_shell.py serve
As a client: python remote_shell.py HOST COMMAND…
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading

PORT, CONNECT_S, END = 10022, 5.0, b"\0status "


def serve() -> None:
    """Runs the commands of clients, each in a thread."""
    with socket.create_server(("", PORT)) as server:
        while True:
            threading.Thread(target=_run, args=server.accept()[:1], daemon=True).start()


def _run(client: socket.socket) -> None:
    with client, client.makefile("rb") as file:
        command = json.loads(file.readline())
        done = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=client, stderr=client, start_new_session=True
        )
        client.sendall(END + str(done.wait()).encode())


def call(host: str, command: str) -> int:
    """Prints the output of a command on `host`; returns its exit status."""
    with socket.create_connection((host, PORT), CONNECT_S) as server:
        server.settimeout(None)
        server.sendall(json.dumps(command).encode() + b"\n")
        received = b""
        while data := server.recv(65536):
            received += data
            text, _, _ = received.partition(END)
            sys.stdout.buffer.write(text)
            sys.stdout.flush()
            received = received[len(text) :]
    return int(received[len(END) :] or 255)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        sys.exit(call(sys.argv[1], " ".join(sys.argv[2:])))
