from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

OBJECTIVES = Path(__file__).with_name("objectives.py")


@pytest.fixture
def space_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a space.yaml for one of the objectives into the test's folder; keywords change or add sections."""

    def write(objective: str, file: Path = OBJECTIVES, **sections: Any) -> Path:
        content = {
            "study": "test",
            "store": "sqlite:///test.db",
            "objective": f"{file}:{objective}",
            "space": {"x": {"type": "real", "low": 0.0, "high": 2.0}},
            "search": {"strategy": "random", "trials": 12, "seed": 3},
        }
        path = tmp_path / "space.yaml"
        path.write_text(yaml.safe_dump(content | sections))
        return path

    return write


@pytest.fixture
def query(tmp_path: Path) -> Callable[[str], list[tuple]]:
    """Asks the test's store with plain SQL."""

    def ask(sql: str) -> list[tuple]:
        connection = sqlite3.connect(f"file:{tmp_path / 'test.db'}?mode=ro", uri=True)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    return ask
