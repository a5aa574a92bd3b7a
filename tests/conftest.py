"""What holds for all tests."""

import signal


def pytest_configure() -> None:
    """Commands under test hear Ctrl-C also where the tests were started in the background, as a CI may do."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
