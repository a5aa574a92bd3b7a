"""The MPI library: its settings, and a sentence if there is none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.mpirun import OPEN_MPI, PROTECTED, mpirun, patient_s

IS_SENT_AT_ONCE = """
import sys, time
import numpy as np
from mpi_learn.mpi.library import MPI

world, vector = MPI.COMM_WORLD, np.ones(2**20, np.uint8)
if world.rank == 0:
    sending, end = world.Isend(vector, dest=1, tag=1), time.monotonic() + float(sys.argv[1])
    while not (is_sent := sending.Test()) and time.monotonic() < end:
        time.sleep(1e-3)
    world.send(None, dest=1, tag=2)
    sending.Wait()
    print("sent at once:", is_sent)
else:
    while not world.iprobe(tag=2):  # lets MPI progress, and does not receive the vector yet
        time.sleep(1e-3)
    world.Recv(vector, tag=1)
    world.recv(tag=2)
"""


@pytest.mark.mpi
@pytest.mark.skipif(not OPEN_MPI, reason="the setting is one of Open MPI")
@pytest.mark.parametrize(("flags", "is_sent"), [([], True), (["--mca", "btl_tcp_eager_limit", "65536"], False)])
def test_a_vector_over_tcp_does_not_wait_for_its_receiver_unless_the_user_limits_it(flags, is_sent):
    over_tcp = [*PROTECTED, "--mca", "btl", "self,tcp", *flags]
    limit_s = patient_s(15) if is_sent else 2
    assert f"sent at once: {is_sent}" in mpirun(2, "-c", IS_SENT_AT_ONCE, str(limit_s), mpirun_flags=over_tcp).stdout


TRANSPORTS = """
import os
from mpi_learn.mpi.library import MPI
MPI.COMM_WORLD.rank
print(os.environ.get("OMPI_MCA_btl"))
"""


@pytest.mark.skipif(not OPEN_MPI, reason="the setting is one of Open MPI")
@pytest.mark.parametrize(
    ("environment", "transports"),
    [
        ({}, "^ofi"),
        ({"OMPI_MCA_btl": "self,tcp"}, "self,tcp"),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, None),  # another launcher, and perhaps a file that names transports
        ({"PMI_RANK": "0", "PMI_SIZE": "1", "PMIX_PARAM_FILE_PASSED": "1"}, "^ofi"),
    ],
)
def test_a_transport_that_only_delays_the_start_is_left_out_unless_the_user_chooses(environment, transports):
    inherited = {name: value for name, value in os.environ.items() if name != "OMPI_MCA_btl"}
    program = [sys.executable, "-c", TRANSPORTS]
    found = subprocess.run(program, env=inherited | environment, capture_output=True, text=True, check=True)
    assert found.stdout == f"{transports}\n"


@pytest.mark.mpi
@pytest.mark.skipif(OPEN_MPI < 5, reason="the setting is one of Open MPI 5")
def test_mpirun_passes_on_the_transports_that_a_file_of_the_user_names(tmp_path, monkeypatch):
    monkeypatch.delenv("OMPI_MCA_btl", raising=False)
    (tmp_path / ".openmpi").mkdir()
    (tmp_path / ".openmpi" / "mca-params.conf").write_text("btl = self,sm\n")
    assert mpirun(1, "-c", TRANSPORTS, env={"HOME": str(tmp_path)}).stdout == "self,sm\n"


WITHOUT_LIBRARY = """
import sys
from importlib import import_module

class NoLibrary:
    def find_spec(self, name, path=None, target=None):
        if name == "mpi4py.MPI":
            raise {error}("cannot load MPI library\\n/usr/lib/libmpi.so: cannot open shared object file")

sys.meta_path.insert(0, NoLibrary())
import_module(sys.argv.pop(1)).main()
"""


@pytest.mark.parametrize("error", ["ImportError", "RuntimeError"])  # of a built mpi4py, and of a wheel of mpi4py 4.1
@pytest.mark.parametrize(
    ("module", "command", "file"),
    [
        ("mpi_learn.cli.commands", "train", "model: m.py:f\ndata: {train: [a.h5], features: X, labels: y}\n"),
        ("mpi_opt.cli.main", "search", "study: s\nobjective: m.py:f\nspace: {x: {type: real, low: 0, high: 1}}\n"),
    ],
)
def test_without_an_mpi_library_programs_end_with_one_sentence(tmp_path, module, command, file, error):
    (tmp_path / "m.py").write_text("def f(x): return x\n")
    (tmp_path / "s.yaml").write_text(file)
    code = WITHOUT_LIBRARY.format(error=error)
    done = subprocess.run(
        [sys.executable, "-c", code, module, command, "s.yaml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    problem, cure = done.stderr.splitlines()
    assert problem.endswith(": mpi4py finds no MPI library (cannot load MPI library)")
    assert "module load openmpi" in cure
