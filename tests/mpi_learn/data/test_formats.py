"""The common properties of all file formats: one test for each, run over the table of formats."""

from __future__ import annotations

import contextlib
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.data.files.data_plan import count_samples
from mpi_learn.data.formats.open_source import SOURCES, open_source
from mpi_learn.data.loading import load
from mpi_learn.errors import DataError, UserError
from tests.mpi_learn.data.formats import FORMATS, Format, marked
from tests.optional_packages import needs
from tests.shared_data import SHARED, needs_shared

N = 13
COLUMNS = {
    "px": np.linspace(-1, 1, N, dtype=np.float32),
    "py": np.linspace(5, 6, N, dtype=np.float64),
    "n_jets": np.arange(N, dtype=np.int32) % 5,
    "label": np.arange(N, dtype=np.int64) % 2,
}
ROWS = [[1.0, 2.0, 3.0], [], [4.0], [5.0, 6.0]]
HEP = SHARED / "hep"


@pytest.fixture(params=marked(FORMATS))
def kind(request) -> Format:
    return FORMATS[request.param]


@pytest.fixture
def path(kind, tmp_path) -> Path:
    path = tmp_path / f"px{kind.suffix}"
    kind.write(path, COLUMNS)
    return path


def configured(path: Path, **others) -> DataConfiguration:
    return DataConfiguration(**{"train": str(path), "features": [["px", "py", "n_jets"]], "labels": "label"} | others)


def loaded(path: Path, **others):
    return load(configured(path, **others), MPI.COMM_SELF, seed=0)


def test_every_format_is_in_the_table():
    assert {Path(f"a{suffix}").suffixes[-1] for suffix in SOURCES} - {".hdf5", ".gz"} <= {
        Path(f"a{one.suffix}").suffixes[-1] for one in FORMATS.values()
    } | {".csv", ".tsv"}


def test_names_are_those_written(path):
    assert set(open_source(path).names()) == set(COLUMNS)


def test_description_contains_length_and_dtype(path):
    descriptions = open_source(path).describe(list(COLUMNS))
    assert {name: d.n_samples for name, d in descriptions.items()} == dict.fromkeys(COLUMNS, N)
    assert {name: d.shape for name, d in descriptions.items()} == dict.fromkeys(COLUMNS, ())
    assert {name: d.dtype.kind for name, d in descriptions.items()} == {
        name: column.dtype.kind for name, column in COLUMNS.items()
    }


@pytest.mark.parametrize(("start", "stop"), [(0, N), (0, 1), (3, 7), (N - 1, N), (4, 11)])
def test_any_range_is_read_as_written(path, start, stop):
    found = open_source(path).read(list(COLUMNS), start, stop)
    for name, column in COLUMNS.items():
        np.testing.assert_array_equal(found[name], column[start:stop])


def test_columns_are_stacked_in_the_order_asked_for(path):
    x = loaded(path, features=[["n_jets", "px"]]).training.x[0]
    np.testing.assert_array_equal(x, np.column_stack([COLUMNS["n_jets"], COLUMNS["px"]]).astype(np.float32))


def test_a_glob_for_features_leaves_the_labels_out(path):
    """Otherwise a model would memorise them."""
    everything = loaded(path, features=[["*"]]).training.x[0]
    others = np.column_stack([column for name, column in COLUMNS.items() if name != "label"]).astype(np.float32)
    np.testing.assert_array_equal(np.sort(everything, 1), np.sort(others, 1))  # each format has an order of its own
    assert loaded(path, features=[["label", "*"]]).training.x[0].shape == (N, len(COLUMNS))  # named columns are read
    several = loaded(path, features=[["*"]], labels=[["p?", "label"]]).training
    assert several.x[0].shape == (N, len(COLUMNS) - 3)


def in_another_order(kind: Format, folder: Path, *, without: str = "") -> tuple[Path, Path]:
    """Two files with the same samples: the second one has its columns in another order, and not the one `without`."""
    paths = tuple(folder / name / f"px{kind.suffix}" for name in ("first", "second"))
    for path, names in zip(paths, (list(COLUMNS), [*reversed(COLUMNS)]), strict=True):
        path.parent.mkdir()
        kind.write(path, {name: COLUMNS[name] for name in names if path == paths[0] or name != without})
    return paths


@pytest.mark.parametrize("names", ["*", [["n_jets", "p*"]], {"one": ["p*"], "other": "n_jets"}])
def test_a_glob_means_the_same_columns_in_all_files_whatever_their_order(kind, names, tmp_path):
    """Otherwise the validation would give each feature of the model the values of another one."""
    first, second = in_another_order(kind, tmp_path)
    dataset = loaded(first, validation=str(second), features=names)
    assert len(dataset.validation) == N
    for training, validation in zip(dataset.training.x, dataset.validation.x, strict=True):
        np.testing.assert_array_equal(validation, training)
    together = load(configured(first, train=[str(first), str(second)], features=names), MPI.COMM_SELF, seed=0)
    for both, alone in zip(together.training.x, dataset.training.x, strict=True):
        np.testing.assert_array_equal(both, np.concatenate([alone, alone]))


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_column_that_only_one_file_has_is_named(kind, is_reversed, tmp_path):
    first, second = in_another_order(kind, tmp_path, without="py")
    train, validation = (second, first) if is_reversed else (first, second)
    with pytest.raises(DataError, match=f"only {first} has py") as caught:
        count_samples(configured(train, validation=str(validation), features=[["*"]]))
    assert str(caught.value).startswith(f"data.features: {validation}")


def test_a_single_label_is_one_number_a_sample(path):
    y = loaded(path).training.y[0]
    assert y.dtype == np.int64
    np.testing.assert_array_equal(y, COLUMNS["label"])


def test_several_inputs_are_a_list_of_lists(path):
    x = loaded(path, features=[["px", "py"], ["n_jets"]]).training.x
    assert [array.shape for array in x] == [(N, 2), (N, 1)]


def test_as_many_samples_are_counted_as_are_loaded(path):
    assert count_samples(configured(path))[0] == len(loaded(path).training) == N


def test_an_unknown_name_names_the_nearest(path):
    with pytest.raises(DataError, match="did you mean label") as caught:
        count_samples(configured(path, labels="lable"))
    assert str(path) in str(caught.value)
    assert "data.labels" in str(caught.value)


def test_text_is_no_number(kind, tmp_path):
    path = tmp_path / f"px{kind.suffix}"
    kind.write(path, COLUMNS | {"label": np.array(["s", "b"] * 6 + ["s"])})
    with pytest.raises(DataError, match="expected real numbers, found"):
        count_samples(configured(path))


def test_the_users_function_may_make_numbers_of_text(kind, tmp_path):
    path = tmp_path / f"px{kind.suffix}"
    kind.write(path, COLUMNS | {"label": np.array(["s", "b"] * 6 + ["s"])})
    (tmp_path / "made.py").write_text("def made(label):\n    return [cell in (b's', 's') for cell in label]\n")
    wanted = {"names": "label", "function": f"{tmp_path}/made.py:made"}
    assert loaded(path, labels=wanted).training.y[0].tolist() == [1, 0] * 6 + [1]


def test_the_users_function_may_change_its_arguments(kind, tmp_path):
    """A source may return a view of an array that it reads again later, or a read-only array."""
    path = tmp_path / f"px{kind.suffix}"
    kind.write(path, COLUMNS)
    (tmp_path / "in_place.py").write_text("def doubled(label):\n    label *= 2\n    return label\n")
    wanted = {"names": "label", "function": f"{tmp_path}/in_place.py:doubled"}
    doubled = (2 * COLUMNS["label"]).tolist()
    assert loaded(path, labels=wanted).training.y[0].tolist() == doubled
    assert loaded(path, features=wanted, labels=None).training.x[0].ravel().tolist() == doubled


def test_a_missing_number_is_found(kind, tmp_path):
    path = tmp_path / f"px{kind.suffix}"
    column = COLUMNS["px"].copy()
    column[7] = np.nan
    kind.write(path, COLUMNS | {"px": column})
    with pytest.raises(DataError, match=r"sample 7, element \(0,\) is nan"):
        loaded(path)


@needs("pyarrow")
def test_a_missing_label_of_a_parquet_file_is_found(tmp_path):
    """A column of booleans with nulls has no dtype of NumPy."""
    import pyarrow
    from pyarrow import parquet

    columns = {name: pyarrow.array(values) for name, values in COLUMNS.items()}
    labels = pyarrow.array([True] * 7 + [None] + [False] * (len(COLUMNS["px"]) - 8))
    parquet.write_table(pyarrow.table(columns | {"is_signal": labels}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="sample 7 is nan"):
        loaded(tmp_path / "a.parquet", labels="is_signal")


@needs("pyarrow")
@pytest.mark.parametrize(
    ("first_line", "names"),
    [
        ("p,q,label", ["p", "q", "label"]),
        ("0,1,label", ["0", "1", "label"]),
        ("nan,inf,label", ["nan", "inf", "label"]),
        ("0,1,2", ["0", "1", "2"]),  # pandas, for columns without names
        (",0,1", ["", "0", "1"]),  # pandas, with the index
        ("0,1", ["0", "1"]),
        (",0", ["", "0"]),
        ("0", None),
        ("0,1,3", None),
        ("0,1,2.0", None),
        ("1,2,3", None),
        ("nan,-inf,1e-3", None),
        ("5.1,3.5,1.4,setosa", None),  # with classes as text
        ("0,cat", ["0", "cat"]),
        ("1,cat", None),
        ("0,,", None),
        ("0,nan,inf", None),
        ("0.5,,7", None),
    ],
)
def test_first_line_of_a_csv_file_has_names_unless_it_has_numbers(first_line, names, tmp_path):
    path = tmp_path / "a.csv"
    line = ",".join("7" * (1 + first_line.count(",")))
    path.write_text(f"{first_line}\n{line}\n{line}\n")
    source = open_source(path)
    assert source.names() == (names or [str(position) for position in range(1 + first_line.count(","))])
    last = source.names()[-1]
    assert source.describe([last])[last].n_samples == (3 if names is None else 2)


@pytest.mark.parametrize("name", marked(["csv", "parquet"]))
@pytest.mark.parametrize("index", ["", "Unnamed: 0", "__index_level_0__", "__index_level_1__"])
def test_a_glob_leaves_out_the_index_that_pandas_writes(name, index, tmp_path):
    path = tmp_path / f"a.{name}"
    FORMATS[name].write(path, {index: np.arange(N)} | COLUMNS)
    everything, columns = (loaded(path, features=names).training.x[0] for names in ("*", ["px", "py", "n_jets"]))
    np.testing.assert_array_equal(everything, columns)
    if index:
        assert loaded(path, features=index).training.x[0][:, 0].tolist() == list(range(N)), "it may be named"


def test_a_truncated_file_is_named(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 10])
    if path.suffix == ".csv":  # the first part of a text file is a text file
        path.write_bytes(content[: len(content) // 10] + b",\n")
    with pytest.raises(DataError) as caught:
        loaded(path)
    assert str(path) in str(caught.value)


def test_damage_anywhere_in_a_file_is_a_data_error_or_not_noticed(path):
    content = path.read_bytes()
    for start in range(0, len(content), max(1, len(content) // 100)):
        path.write_bytes(content[:start] + b"\xe5\x13" * 8 + content[start + 16 :])
        with contextlib.suppress(DataError):
            loaded(path)


@needs("uproot")
def test_a_root_branch_of_a_type_that_uproot_does_not_know_is_named(tmp_path, monkeypatch):
    import uproot

    FORMATS["root"].write(tmp_path / "a.root", COLUMNS)

    def interpretation_of(*_):
        raise uproot.interpretation.identify.UnknownInterpretation("none of the rules matched", "a.root", "events")

    monkeypatch.setattr(uproot.interpretation.identify, "interpretation_of", interpretation_of)
    with pytest.raises(DataError, match=r"data\.features: .*a\.root: px: expected real numbers, found objects"):
        count_samples(configured(tmp_path / "a.root", features="px"))


def test_a_file_of_rubbish_is_named(path):
    path.write_bytes(bytes(range(256)) * 8)
    with pytest.raises(DataError) as caught:
        loaded(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", marked(name for name, one in FORMATS.items() if one.write_jagged))
def test_rows_of_different_length_are_cut_and_filled_with_zeros(name, tmp_path):
    path = tmp_path / f"a{FORMATS[name].suffix}"
    FORMATS[name].write_jagged(path, "jet_pt", ROWS)
    x = loaded(path, features=[["jet_pt[2]"]], labels=None).training.x[0]
    assert x.tolist() == [[1, 2], [0, 0], [4, 0], [5, 6]]


@pytest.mark.parametrize("name", marked(name for name, one in FORMATS.items() if one.write_jagged))
def test_rows_of_different_length_need_a_width(name, tmp_path):
    path = tmp_path / f"a{FORMATS[name].suffix}"
    FORMATS[name].write_jagged(path, "jet_pt", ROWS)
    with pytest.raises(DataError, match=r"write jet_pt\[4\]"):
        count_samples(configured(path, features="jet_pt", labels=None))


@pytest.mark.parametrize("name", marked(name for name, one in FORMATS.items() if one.write_jagged))
def test_rows_of_no_value_are_refused(name, tmp_path):
    """Users of ROOT read jet_pt[0] as the first value of each row."""
    path = tmp_path / f"a{FORMATS[name].suffix}"
    FORMATS[name].write_jagged(path, "jet_pt", ROWS)
    with pytest.raises(DataError, match="expected at least 1 value of each row, found 0") as caught:
        count_samples(configured(path, features=[["jet_pt[0]"]], labels=None))
    assert caught.value.where == f"data.features: {path}: jet_pt[0]"
    assert "jet_pt[1] is the first value of each row" in caught.value.cure


def test_a_link_to_a_group_that_contains_it_is_not_followed(tmp_path):
    path = tmp_path / "a.h5"
    FORMATS["hdf5"].write(path, COLUMNS | {"group/inner/mass": COLUMNS["px"], "other/spin": COLUMNS["py"]})
    with h5py.File(path, "a") as file:
        file["group/root"] = h5py.SoftLink("/")
        file["group/inner/outer"] = file["group"]
        file["group/other"] = file["other"]
    expected = {*COLUMNS, "group/inner/mass", "group/other/spin", "other/spin"}
    assert set(open_source(path).names()) == expected
    assert loaded(path, features="group/inner").training.x[0].shape == (N,)


def test_members_of_an_npz_file_that_are_no_arrays_are_passed_over(tmp_path):
    path = tmp_path / "a.npz"
    FORMATS["npz"].write(path, COLUMNS)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("README.txt", "the samples of a simulation")
        archive.writestr("folder/", "")
    assert open_source(path).names() == list(COLUMNS)
    assert len(loaded(path).training) == N


def _pieces_of_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=np.zeros((13, 4)), chunks=(3, 4))
        file.create_dataset("b", data=np.zeros(13), chunks=(6,))
        file["c"] = np.zeros(13)


def _pieces_of_parquet(path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    with parquet.ParquetWriter(path, pyarrow.schema({name: pyarrow.float32() for name in "abc"})) as writer:
        for n in (3, 6, 4):
            writer.write_table(pyarrow.table(dict.fromkeys("abc", np.zeros(n, np.float32)), writer.schema))


def _pieces_of_root(path: Path) -> None:
    import uproot

    with uproot.recreate(path) as file:
        file.mktree("events", dict.fromkeys("abc", np.float32))
        for n in (3, 6, 4):
            file["events"].extend(dict.fromkeys("abc", np.zeros(n, np.float32)))


@pytest.mark.parametrize(
    ("suffix", "write", "n"),
    [
        (".h5", _pieces_of_hdf5, {"a": 3, "ab": 6, "ac": 3, "c": 1}),
        pytest.param(".parquet", _pieces_of_parquet, {"a": 6, "abc": 6}, marks=needs("pyarrow")),
        pytest.param(".root", _pieces_of_root, {"a": 6, "abc": 6}, marks=needs("uproot")),
        (".npz", lambda path: np.savez(path, a=np.zeros(13)), {"a": 1}),
    ],
    ids=["hdf5", "parquet", "root", "npz"],
)
def test_the_largest_piece_that_a_file_stores_is_known(tmp_path, suffix, write, n):
    """13 samples in chunks of 3 and 6, in row groups and baskets of 3, 6 and 4, or one by one."""
    write(tmp_path / f"a{suffix}")
    source = open_source(tmp_path / f"a{suffix}")
    assert {names: source.n_together(list(names)) for names in n} == n
    source.close()


@needs("pyarrow")
def test_missing_rows_of_a_parquet_file_are_found(tmp_path):
    """pyarrow reads no such file, whatever the rows that are requested."""
    import pyarrow
    from pyarrow import parquet

    rows = [[float(i), None if i == 2 else 0.0] for i in range(12)]
    for wrong in (None, 7):
        given = [None if i == wrong else row for i, row in enumerate(rows)]
        track = pyarrow.array(given, pyarrow.list_(pyarrow.float32(), 2))
        table = pyarrow.table({"track.a": pyarrow.array(rows, track.type), "track": track, "y": range(12)})
        parquet.write_table(table, tmp_path / f"{wrong}.parquet", row_group_size=5)
    with pytest.raises(DataError, match=r"sample 2, element \(1,\) is nan"):
        loaded(tmp_path / "None.parquet", features="track", labels="y")
    with pytest.raises(DataError, match="one of the samples 5 to 9 has no row") as caught:
        loaded(tmp_path / "7.parquet", features="track", labels="y")
    assert caught.value.where.endswith(f"{tmp_path / '7.parquet'}: track")
    assert "write a row of 2 numbers" in caught.value.cure


@pytest.mark.parametrize(
    ("suffix", "module", "extra"),
    [
        pytest.param(".root", "uproot", "root", marks=needs("uproot")),
        pytest.param(".parquet", "pyarrow.parquet", "parquet", marks=needs("pyarrow")),
        (".csv", "pyarrow.csv", "parquet"),
    ],
)
def test_a_missing_reader_says_what_to_install(suffix, module, extra, tmp_path, monkeypatch):
    path = tmp_path / f"a{suffix}"
    FORMATS[suffix[1:]].write(path, COLUMNS)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"pip install mpi-opt\[{extra}\]"):
        count_samples(configured(path))


@needs_shared
@needs("uproot", "pyarrow")
def test_the_same_events_in_three_containers_are_the_same_samples(tmp_path):
    (tmp_path / "is_signal.py").write_text("def is_signal(label):\n    return label == 's'\n")
    with h5py.File(HEP / "atlas_higgs_10k.h5") as file:
        columns = [str(name) for name in file["features"].attrs["columns"]]
    hdf5 = loaded(HEP / "atlas_higgs_10k.h5", features="features", labels="label").training
    root = loaded(HEP / "atlas_higgs_10k.root", features=columns, labels="label").training
    of_text = {"names": "Label", "function": f"{tmp_path}/is_signal.py:is_signal"}
    text = loaded(HEP / "atlas_higgs_10k.csv.gz", features=columns, labels=of_text).training
    assert hdf5.x[0].shape == (9998, 30)
    for other in (root, text):
        np.testing.assert_array_equal(other.x[0], hdf5.x[0])
        np.testing.assert_array_equal(other.y[0], hdf5.y[0])


TABLES = {
    "commas": ("pt,eta,y\n1.5,2,0\n2.5,3,1\n", "utf-8", ".csv"),
    "byte order mark": ("pt,eta,y\n1.5,2,0\n2.5,3,1\n", "utf-8-sig", ".csv"),
    "tabs": ("pt\teta\ty\n1.5\t2\t0\n2.5\t3\t1\n", "utf-8", ".csv"),
    "tabs, by suffix": ("pt\teta\ty\n1.5\t2\t0\n2.5\t3\t1\n", "utf-8", ".tsv"),
    "semicolons": ("pt;eta;y\n1.5;2;0\n2.5;3;1\n", "utf-8", ".csv"),
    "bars": ("pt|eta|y\n1.5|2|0\n2.5|3|1\n", "utf-8", ".csv"),
    "decimal commas": ("pt;eta;y\n1,5;2;0\n2,5;3;1\n", "utf-8", ".csv"),
    "decimal commas without names": ("1,5;2;0\n2,5;3;1\n", "utf-8", ".csv"),
    "commas in a name": ('pt\teta\ty\t"a, b, c, d, e"\n1.5\t2\t0\t1\n2.5\t3\t1\t1\n', "utf-8", ".csv"),
    "semicolons in a cell": ('pt,eta,y,text\n1.5,2,0,"a;b;c;d;e;f"\n2.5,3,1,c\n', "utf-8", ".csv"),
    "latin-1": ("pt,eta,y,größe\n1.5,2,0,3\n2.5,3,1,4\n", "latin-1", ".csv"),
    "utf-16": ("pt,eta,y,größe\n1.5,2,0,3\n2.5,3,1,4\n", "utf-16", ".csv"),
}


@needs("pyarrow")
@pytest.mark.parametrize(("text", "encoding", "suffix"), TABLES.values(), ids=TABLES)
def test_separator_and_encoding_of_a_text_file_are_found(text, encoding, suffix, tmp_path):
    (tmp_path / f"a{suffix}").write_bytes(text.encode(encoding))
    names = (["pt", "eta"], "y") if "pt" in text else (["0", "1"], "2")
    read = loaded(tmp_path / f"a{suffix}", features=names[0], labels=names[1]).training
    np.testing.assert_array_equal(read.x[0], [[1.5, 2], [2.5, 3]])
    np.testing.assert_array_equal(read.y[0], [0, 1])


@needs("pyarrow")
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_names_in_other_encodings_are_found(encoding, tmp_path):
    (tmp_path / "a.csv").write_bytes("größe,y\n1.5,0\n2.5,1\n".encode(encoding))
    assert loaded(tmp_path / "a.csv", features="größe", labels="y").training.x[0].ravel().tolist() == [1.5, 2.5]


def test_text_in_an_hdf5_file_is_called_text(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"], file["y"] = np.zeros((2, 1)), ["signal", "background"]
    with pytest.raises(DataError, match="y: expected real numbers, found text"):
        loaded(tmp_path / "a.h5", features="X", labels="y")
