import gc

import pytest

from mpi_opt.core.collecting import collector_paused


def test_the_garbage_collector_runs_again_after_a_pause_also_after_an_error():
    with pytest.raises(KeyError), collector_paused():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_a_pause_does_not_switch_on_a_collector_that_was_off():
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
