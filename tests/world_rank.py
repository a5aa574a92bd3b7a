"""One rank of a `tests.world.World`: runs the programs that it is sent, each as if in a process of its own."""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from mpi_learn.mpi import process_end
from mpi_learn.mpi.library import MPI
from tests.hiding.hide import hide_only

PACKAGES = ("mpi_learn", "mpi_opt")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


def main(address: str) -> None:
    """Runs programs until the connection is closed."""
    rank = MPI.COMM_WORLD.rank
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    connection.sendall(f"{rank}\n".encode())
    for line in connection.makefile("rb"):
        job = json.loads(line)
        with _process(job, rank):
            status = run(job["arguments"])
        gc.collect()
        gc.freeze()  # what a program has imported, which each later training would visit
        connection.sendall(str(status).encode())
    MPI.Finalize()
    os._exit(0)  # programs may have left threads and exit handlers


def run(arguments: list[str]) -> int:
    """Runs ``python ARGUMENTS`` here; returns its exit status."""
    try:
        _execute(arguments)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0)
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1
    return 0


def _execute(arguments: list[str]) -> None:
    first, *rest = arguments
    if first == "-m":
        sys.argv, sys.path[0] = rest, str(Path.cwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        module = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(module))
    else:
        sys.argv, sys.path[0] = arguments, str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")


@contextmanager
def _process(job: dict[str, Any], rank: int) -> Iterator[None]:
    """Sets up the process state of a program, and restores the earlier state."""
    modules, path, argv, main_module = set(sys.modules), list(sys.path), sys.argv, sys.modules["__main__"]
    environment, handlers = dict(os.environ), {number: signal.getsignal(number) for number in SIGNALS}
    streams, descriptors = (sys.stdout, sys.stderr), [os.dup(1), os.dup(2)]
    folder, definitions = str(Path.cwd()), _definitions()
    _drain()
    for standard, name in ((1, "out"), (2, "err")):
        descriptor = os.open(f"{job['outputs']}/{name}-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.chdir(job["cwd"])
    os.environ.update(job["env"])
    hide_only(set(filter(None, job["hidden"].split(","))))
    process_end.exit_status = None
    importlib.invalidate_caches()
    try:
        yield
    finally:
        process_end.flush()
        sys.stdout, sys.stderr = streams
        process_end.flush()
        for standard, descriptor in zip((1, 2), descriptors, strict=True):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:], sys.argv, sys.modules["__main__"] = path, argv, main_module
        for name in set(sys.modules) - modules:
            file = str(getattr(sys.modules[name], "__file__", ""))
            is_of_program = file.startswith(job["cwd"]) and name.partition(".")[0] not in PACKAGES
            if is_of_program and "site-packages" not in file:  # the environment may be in this folder
                del sys.modules[name]
        os.chdir(folder)
        for (owner, name), definition in definitions.items():
            if vars(owner).get(name) is not definition:
                setattr(owner, name, definition)  # the program has put something else in its place


def _definitions() -> dict[tuple[Any, str], Any]:
    """The functions, classes, methods and constants of `mpi_learn` and `mpi_opt`, by what holds them and name."""
    modules = [sys.modules[name] for name in sys.modules if name.partition(".")[0] in PACKAGES]
    classes = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    owners = [*modules, *(one for one in classes if one.__module__.partition(".")[0] in PACKAGES)]
    return {
        (owner, name): value
        for owner in owners
        for name, value in vars(owner).items()
        if isinstance(value, FunctionType | type | property) or name.isupper()
    }


def _drain() -> None:
    """Receives the messages that a program left, which would reach the next program."""
    with suppress(MPI.Exception):
        while (message := MPI.COMM_WORLD.Improbe()) is not None:
            message.Recv(bytearray(1 << 20))


if __name__ == "__main__":
    main(sys.argv[1])
