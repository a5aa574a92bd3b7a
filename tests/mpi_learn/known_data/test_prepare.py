"""Known data sets, written as HDF5 files that a training reads."""

from __future__ import annotations

import errno
import functools
import gzip
import http.server
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml
from sklearn.datasets import load_digits

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.data_plan import count_samples
from mpi_learn.errors import DataError, UserError
from mpi_learn.known_data import DATA_SETS, prepare
from mpi_learn.known_data.data_set import Origin, Original
from tests.mpi_learn.known_data import originals
from tests.optional_packages import needs, with_marks
from tests.shared_data import SHARED, needs_shared


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return originals.write_all(tmp_path_factory.mktemp("originals"))


def contents(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: file[name][()] for name in file}


SIMULATED = {"jets": {"simulate": 7, "classes": 5}, "showers": {"simulate": 3, "seed": 4, "energy": (2.0, 3.0)}}
CASES = [(name, {}) for name in DATA_SETS] + list(SIMULATED.items())


def written(name: str, options: dict, folder: Path, to: Path) -> str:
    source = None if options or name == "digits" else folder
    return prepare(name, to, source, **options)


@pytest.mark.parametrize(("name", "options"), with_marks(CASES, {"higgs": "pyarrow", "'classes'": "pythia8mc"}))
def test_every_file_matches_its_description(name, options, folder, tmp_path):
    written(name, options, folder, tmp_path / "data.h5")
    described = DATA_SETS[name].simulation.arrays if options else DATA_SETS[name].arrays
    with h5py.File(tmp_path / "data.h5") as file:
        assert set(file) == {one.name for one in described}
        for one in described:
            dataset = file[one.name]
            shape = one.shape.replace("(n", f"({len(file['X'])}").replace("particles", "64")
            assert str(dataset.shape) == shape, one.name
            assert dataset.dtype == one.dtype, one.name
            assert dataset.attrs["unit"] == one.unit
            assert [str(column) for column in dataset.attrs.get("columns", [])] == list(one.columns)
            assert not one.columns or len(one.columns) == dataset.shape[-1]
        assert file.attrs["data_set"] == name
        assert file.attrs["source"]
        assert file.attrs["licence"]


@pytest.mark.parametrize(("name", "options"), with_marks(CASES, {"higgs": "pyarrow", "'classes'": "pythia8mc"}))
def test_the_line_that_is_printed_reads_the_file(name, options, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = written(name, options, folder, Path("data.h5"))
    section = yaml.safe_load(said.splitlines()[-1])["data"]
    assert min(count_samples(DataConfiguration(**section))) > 0


def test_digits_are_those_of_scikit_learn(tmp_path):
    prepare("digits", tmp_path / "new" / "digits.h5")
    found = contents(tmp_path / "new" / "digits.h5")
    np.testing.assert_array_equal(found["X"] * 16, load_digits().data)
    np.testing.assert_array_equal(found["y"], load_digits().target)


def test_mnist_is_made_of_idx_files_gzipped_or_not(folder, tmp_path):
    prepare("mnist", tmp_path / "out" / "m.h5", folder / "mnist")
    found = contents(tmp_path / "out" / "m.h5")
    assert found["X"][1, :, :, 0].tolist() == (np.arange(784, 1568) % 256).reshape(28, 28).tolist()
    assert contents(tmp_path / "out" / "m_test.h5")["y"].tolist() == [0, 1]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["m.h5", "m_test.h5"]


def test_cifar10_images_have_their_colours_last_and_their_rows_in_order(folder, tmp_path):
    prepare("cifar10", tmp_path / "c.h5", folder)
    found = contents(tmp_path / "c.h5")
    assert found["y"].tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert found["X"][3, 0, 0].tolist() == [200, 0, 0]
    assert found["X"][3, 0, 31].tolist() == [0, 100, 0]
    assert found["X"][3, 31, 0].tolist() == [200, 0, 50]
    assert len(contents(tmp_path / "c_test.h5")["y"]) == 2


def test_jets_know_their_event_and_whether_a_quark_made_them(folder, tmp_path):
    prepare("jets", tmp_path / "j.h5", folder)
    found = contents(tmp_path / "j.h5")
    assert found["event"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert found["y"].tolist() == [0, 1] * 6
    assert found["flavor"].tolist() == [21, 2] * 6
    with h5py.File(folder / "hep" / "dijet_jets.h5") as file:
        np.testing.assert_allclose(found["features"][:, -1], file["jet_features/data"][..., 0].ravel(), rtol=1e-6)
        np.testing.assert_allclose(found["event_features"][2], file["event_features/data"][1], rtol=1e-6)
    np.testing.assert_allclose(found["X"].std(axis=0), 1, rtol=1e-5)


@needs("pyarrow")
def test_higgs_features_that_are_not_defined_are_the_mean_of_the_others(folder, tmp_path):
    prepare("higgs", tmp_path / "h.h5", folder)
    found = contents(tmp_path / "h.h5")
    assert found["features"][0, 4] == -999
    assert found["X"][0, 4] == 0
    assert abs(found["X"][1:, 4].mean()) < 1e-6
    assert found["y"].tolist() == [1, 0, 1, 0, 1, 0]
    assert found["event_id"][0] == 100
    assert found["weight"][1] == 1.5


def test_showers_have_the_energy_of_their_particle_in_gev(folder, tmp_path):
    prepare("showers", tmp_path / "s.h5", folder)
    found = contents(tmp_path / "s.h5")
    assert found["energy"].ravel().tolist() == [10] * 6
    assert found["X"].max(axis=(1, 2, 3, 4)).tolist() == [0.5] * 3 + [1.5] * 3


@pytest.mark.parametrize("where", ["hep/dijet_jets.h5", "hep", ""])
def test_the_files_are_found_from_their_own_or_an_outer_folder(where, folder, tmp_path):
    prepare("jets", tmp_path / "j.h5", folder / where)
    assert len(contents(tmp_path / "j.h5")["y"]) == 12


@pytest.fixture(scope="module")
def url(folder) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("where", ["/hep/dijet_jets.h5", "/hep/", ""])
def test_the_files_are_found_behind_a_url(where, url, tmp_path):
    prepare("jets", tmp_path / "j.h5", url + where)
    assert len(contents(tmp_path / "j.h5")["y"]) == 12


def test_a_download_must_be_the_published_file(url):
    place = f"{url}/hep/dijet_jets.h5"
    with pytest.raises(DataError, match="not the published file"):
        Origin(None, "", (Original("jets.h5", (place,), md5="0" * 32),), "somewhere").read("jets.h5")
    where, _ = Origin(None, "", (Original("jets.h5", ("http://127.0.0.1:9/x", place)),), "somewhere").read("jets.h5")
    assert where == place


def test_a_connection_that_breaks_during_a_download_is_reported(tmp_path):
    """The server promises more bytes than it sends."""

    class Breaking(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Breaking) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with pytest.raises(DataError, match="cannot be downloaded"):
                prepare("mnist", tmp_path / "m.h5", f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()


@pytest.mark.parametrize("name", [name for name in DATA_SETS if name != "digits"])
def test_without_internet_the_message_names_the_source_of_the_files(name, tmp_path, monkeypatch):
    def offline(*_: object, **__: object) -> None:
        raise OSError("no internet")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    with pytest.raises(DataError) as caught:
        prepare(name, tmp_path / "m.h5")
    said = str(caught.value)
    assert DATA_SETS[name].source in said
    assert "--from FOLDER" in said
    assert ("--simulate" in said) == (DATA_SETS[name].simulation is not None)


@pytest.mark.parametrize(("name", "options"), with_marks(SIMULATED.items(), {"jets": "pythia8mc"}))
def test_simulated_files_say_so_and_the_same_seed_gives_the_same_samples(name, options, tmp_path):
    for path, seed in (("a.h5", 1), ("b.h5", 1), ("c.h5", 2)):
        prepare(name, tmp_path / path, **options | {"seed": seed})
    first, again, other = (contents(tmp_path / path) for path in ("a.h5", "b.h5", "c.h5"))
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert not np.array_equal(first["X"], other["X"])
    with h5py.File(tmp_path / "a.h5") as file:
        assert file.attrs["simulated"]
        assert file.attrs["simulated_by"] == DATA_SETS[name].simulation.program
        assert bool(file.attrs.get("version")) == (name == "jets")
        assert f"prepare {name} --simulate {options['simulate']} --seed 1" in file.attrs["created_by"]


def test_a_simulation_longer_than_a_block_fills_the_whole_file(tmp_path):
    prepare("showers", tmp_path / "s.h5", simulate=101, energy=(1.0, 1.5))
    found = contents(tmp_path / "s.h5")
    assert (found["X"].sum(axis=(1, 2, 3, 4)) > 0).all()
    assert (found["energy"] >= 1).all()
    assert len(np.unique(found["energy"])) == 101


def test_without_pythia_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pythia8mc", None)
    with pytest.raises(UserError) as caught:
        prepare("jets", tmp_path / "j.h5", simulate=3)
    assert caught.value.cure == "pip install mpi-opt[hep]"


BAD = {
    "unknown name": ("mnits", {}, "did you mean mnist"),
    "no suffix": ("mnist", {"to": "m.txt"}, "ends in .h5"),
    "digits from files": ("digits", {}, "leave out --from"),
    "no such folder": ("jets", {"source": "/nowhere"}, "dijet_jets.h5 or jets.h5; or --simulate N"),
    "another file": ("jets", {"source": __file__}, "found no dijet_jets.h5"),
    "no simulator": ("mnist", {"source": None, "simulate": 3}, "only jets and showers"),
    "simulated from files": ("jets", {"simulate": 3}, "no original files"),
    "seed without simulation": ("jets", {"seed": 3}, "add --simulate N"),
    "three classes": ("jets", {"source": None, "simulate": 3, "classes": 3}, "expected 2 or 5, found 3"),
    "no samples": ("jets", {"source": None, "simulate": 0}, "expected at least 1, found 0"),
    "no particles": ("jets", {"source": None, "simulate": 3, "particles": 0}, "--particles"),
    "unordered energies": ("jets", {"source": None, "simulate": 3, "energy": (900.0, 500.0)}, "LOW HIGH"),
    "too low an energy": ("showers", {"source": None, "simulate": 3, "energy": (0.1, 5.0)}, "between 1 and 1000"),
    "another's option": ("showers", {"source": None, "simulate": 3, "classes": 2}, "they have --seed, --energy"),
}


@pytest.mark.parametrize(("name", "changes", "said"), BAD.values(), ids=BAD)
def test_invalid_request_is_refused_with_a_reason(name, changes, said, folder, tmp_path):
    arguments = {"source": folder} | changes
    to = tmp_path / arguments.pop("to", "m.h5")
    with pytest.raises(UserError) as caught:
        prepare(name, to, arguments.pop("source"), **arguments)
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def text_for_a_number(folder: Path) -> None:
    file = folder / "atlas-higgs-challenge-2014-v2.csv.gz"
    file.write_bytes(gzip.decompress(file.read_bytes()).replace(b"-999.0", b"x"))


def spoiled_byte(folder: Path) -> None:
    """Changes the middle of a compressed file, which has enough of them to be deflated."""
    file = folder / "train-images-idx3-ubyte.gz"
    content = bytearray(gzip.compress(bytes(range(256)) * 50))
    content[10] ^= 0xFF
    file.write_bytes(bytes(content))


def group_for_a_dataset(folder: Path) -> None:
    with h5py.File(folder / "dijet_jets.h5", "a") as file:
        del file["event_features/data"]
        file.create_group("event_features/data")


DAMAGED = {
    "missing part": ("mnist", lambda folder: (folder / "t10k-labels-idx1-ubyte").unlink(), "found no t10k-labels"),
    "no idx": ("mnist", lambda f: (f / "train-labels-idx1-ubyte").write_bytes(b"x" * 9), "not a complete idx"),
    "an idx file that ends in its header": (
        "mnist",
        lambda f: (f / "train-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1, 0, 0))),
        "not a complete idx",
    ),
    "too few labels": (
        "mnist",
        lambda folder: originals.write_idx(folder / "train-labels-idx1-ubyte", np.arange(5)),
        "6 images but 5 labels",
    ),
    "no gzip": ("mnist", lambda f: (f / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8bxx"), "damaged"),
    "a byte of a gzip file": ("mnist", spoiled_byte, "damaged"),
    "cut archive": ("cifar10", lambda f: originals.write_cifar10(f / "cifar-10-binary.tar.gz", 5), "not complete"),
    "no archive": ("cifar10", lambda f: (f / "cifar-10-binary.tar.gz").write_bytes(b"no"), "damaged"),
    "no HDF5": ("jets", lambda folder: (folder / "dijet_jets.h5").write_bytes(b"no"), "not an HDF5 file"),
    "another HDF5": ("jets", lambda f: originals.write_voxels(f / "dijet_jets.h5"), "no dataset jet_features/data"),
    "a group for a dataset": ("jets", group_for_a_dataset, "no dataset event_features/data"),
    "another CSV": (
        "higgs",
        lambda folder: (folder / "atlas-higgs-challenge-2014-v2.csv.gz").write_bytes(b"a,b\n1,2\n"),
        "Column 'DER_mass_MMC'",
    ),
    "text in a CSV": ("higgs", text_for_a_number, "invalid value 'x'"),
}


@pytest.mark.parametrize(("name", "spoil", "said"), with_marks(DAMAGED.values(), {"higgs": "pyarrow"}), ids=DAMAGED)
def test_damaged_files_are_named_and_nothing_is_written(name, spoil, said, tmp_path):
    within = originals.write_all(tmp_path / "originals") / DATA_SETS[name].folder
    spoil(within)
    with pytest.raises(DataError) as caught:
        prepare(name, tmp_path / "m.h5", within)
    assert said in caught.value.problem
    assert caught.value.cure
    assert not list(tmp_path.glob("*.h5"))


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    within = originals.write_all(tmp_path / "originals") / "mnist"

    def read_bytes(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    with pytest.raises(DataError, match="the file cannot be read: Permission denied") as caught:
        prepare("mnist", tmp_path / "m.h5", within)
    assert caught.value.where == str(within / "train-images-idx3-ubyte.gz")
    assert "read permission" in caught.value.cure


@needs("pythia8mc")
def test_a_simulation_that_fails_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("mpi_learn.known_data.simulation.pythia_jets.described", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare("jets", tmp_path / "j.h5", simulate=3)
    assert list(tmp_path.iterdir()) == []


@needs_shared
def test_the_real_mnist_has_its_well_known_first_digits(tmp_path):
    prepare("mnist", tmp_path / "mnist.h5", SHARED)
    with h5py.File(tmp_path / "mnist.h5") as file:
        assert file["X"].shape == (60000, 28, 28, 1)
        assert file["y"][:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]


@needs_shared
@needs("pyarrow")
def test_the_real_files_of_the_other_data_sets_are_read(tmp_path):
    for name, n in {"cifar10": 4000, "jets": 14812, "higgs": 9998, "showers": 20}.items():
        prepare(name, tmp_path / f"{name}.h5", SHARED)
        assert len(contents(tmp_path / f"{name}.h5")["X"]) == n
    assert contents(tmp_path / "jets.h5")["y"].sum() == 13749
    photons = contents(tmp_path / "showers.h5")["X"][:10].sum(axis=(1, 2, 3, 4))
    assert (photons < 10).all()


@needs("pyarrow")
@needs_shared
def test_the_higgs_table_and_its_hdf5_copy_are_equal(tmp_path):
    paths = {name: tmp_path / f"{name}.h5" for name in ("atlas_higgs_10k.h5", "atlas_higgs_10k.csv.gz")}
    for name, path in paths.items():
        prepare("higgs", path, SHARED / "hep" / name)
    first, second = map(contents, paths.values())
    for key in first:
        np.testing.assert_allclose(first[key], second[key], rtol=1e-6, err_msg=key)


def test_the_command_lists_every_data_set_and_its_help_names_them(capsys):
    from mpi_learn.cli.commands import prepare as command

    command()
    listed = capsys.readouterr().out
    for name, one in DATA_SETS.items():
        assert re.search(rf"^{name}: ", listed, flags=re.MULTILINE)
        assert name in command.__doc__
        assert " ".join(one.licence.split()) in " ".join(listed.split())
