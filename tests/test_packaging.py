"""An installation has the entry points and extras of setup.cfg."""

import configparser
import subprocess
from importlib.metadata import metadata
from pathlib import Path

SETUP = Path(__file__).parents[1] / "setup.cfg"
PACKAGES = "mpi_opt", "mpi_learn"


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


def test_an_installation_has_every_file_of_the_packages():
    written = configparser.ConfigParser()
    written.read(SETUP)
    patterns = dict(written["options.package_data"])
    root = SETUP.parent
    for path in [*root.glob("mpi_opt/**/*"), *root.glob("mpi_learn/**/*")]:
        if path.is_dir() or path.suffix == ".py" or "__pycache__" in path.parts:
            continue
        package = next(folder for folder in path.parents if (folder / "__init__.py").exists())
        name = ".".join(package.relative_to(root).parts)
        allowed = patterns.get(name, "").split()
        assert any(path.relative_to(package).match(pattern) for pattern in allowed), f"{path} is not in package_data"


def test_every_folder_of_the_packages_is_a_package_in_the_repository():
    """Without a file ``__init__.py`` in git a folder is missing in installations, although the tests can import it."""
    listed = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=SETUP.parent, capture_output=True, text=True, check=False
    )
    files = {Path(line) for line in listed.stdout.splitlines()}
    if listed.returncode:  # an archive of the repository
        files = {path.relative_to(SETUP.parent) for part in PACKAGES for path in (SETUP.parent / part).rglob("*.py")}
    folders = {path.parent for path in files if path.suffix == ".py"}
    assert folders
    assert [folder for folder in folders if folder / "__init__.py" not in files] == []
