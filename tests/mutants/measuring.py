"""A plugin of pytest, used under ``coverage run``: names the test that runs, and writes how long each test took."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

from tests.mutants.selecting import SECONDS


def _switch(context: str) -> None:
    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(context)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Lines count for this test."""
    _switch(item.nodeid)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Lines of a fixture that several tests share count for all tests of the file."""
    if fixturedef.scope == "function":
        return (yield)
    _switch(request.node.nodeid.partition("::")[0] + "::")
    try:
        return (yield)
    finally:
        _switch(os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes passed tests."""
    if report.when == "call" and report.passed:
        with Path(os.environ[SECONDS]).open("a") as file:
            file.write(json.dumps([report.nodeid, round(report.duration, 3)]) + "\n")
