"""Studies for tests of views, and a browser."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mpi_opt.store import Store
from mpi_opt.study.study import Study
from tests.mpi_opt.store.made_up import make_study

Browser = Callable[..., str]


@pytest.fixture(scope="session")
def digits_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the finished study ``digits`` of 60 trials."""
    path = tmp_path_factory.mktemp("store") / "results.db"
    with Store.open(str(path)) as store:
        make_study(store, n_trials=60)
    return path


@pytest.fixture(scope="session")
def digits(digits_file: Path) -> Study:
    return Study.open(str(digits_file), "digits")


@pytest.fixture(scope="session")
def browser() -> Browser:
    """Opens an address in headless Chromium; returns the final page and the messages of its console."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs a browser: apt-get install chromium")

    def look(address: str, *, width: int = 1280, picture: Path | None = None, budget_ms: int = 4000) -> str:
        flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
        flags += " --disable-component-update --disable-sync --enable-logging=stderr --dump-dom"
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            result = subprocess.run(
                [
                    *(program, *flags.split(), f"--user-data-dir={profile}", f"--window-size={width},1800"),
                    *([f"--screenshot={picture}"] if picture else []),
                    *(f"--virtual-time-budget={budget_ms}", address),
                ],
                capture_output=True,
                text=True,
                timeout=90,
                check=True,
            )
        said = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
        return result.stdout + "\n".join(said)

    return look
