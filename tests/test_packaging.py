"""What setup.cfg promises is what an installation offers."""

import configparser
from importlib.metadata import metadata
from pathlib import Path

SETUP = Path(__file__).parents[1] / "setup.cfg"


def test_an_installation_offers_every_extra_of_setup_cfg():
    written = configparser.ConfigParser()
    written.read(SETUP)
    offered = metadata("mpi-opt").get_all("Provides-Extra")
    assert sorted(offered) == sorted(written["options.extras_require"])


def test_every_extra_that_users_can_have_is_in_all():
    written = configparser.ConfigParser()
    written.read(SETUP)
    extras = written["options.extras_require"]
    chosen = extras["all"].strip().removeprefix("mpi-opt[").removesuffix("]").split(",")
    # one TensorFlow and one MPI at a time; and what only developers need
    assert set(chosen) == set(extras) - {"all", "gpu", "mpich", "docs", "dev", "peers"}
