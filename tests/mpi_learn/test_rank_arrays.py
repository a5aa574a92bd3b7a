"""The arrays that one rank alone holds, on their way into a checkpoint and back."""

from __future__ import annotations

import pickle

import numpy as np

from mpi_learn.testing.thread_ranks import run_ranks
from mpi_learn.training.checkpoints.checkpoint_file import SavedTraining, gather_arrays, save_checkpoint, scatter_arrays


def arrays_of(rank):
    matrix = np.arange(2000, dtype=np.float32).reshape(40, 50) + rank
    return {
        "matrix": matrix,
        "columns": matrix.T,
        "every_second": matrix[::2, ::2],
        "counts": np.array([rank, 2], np.int64),
        "number": np.array(rank),
        "nothing": np.zeros((0, 3), np.float32),
    }


def test_arrays_of_all_ranks_are_saved_and_loaded_as_buffers(tmp_path):
    """MPI does not send a Python object of 2 GiB or more, as an array would be with pickle."""

    def run(comm):
        def send(value, *where, send=comm.send):
            assert len(pickle.dumps(value)) < 1000, "an array is sent as an object"
            send(value, *where)

        comm.send = send
        with gather_arrays(comm, arrays_of(comm.rank)) as rank_arrays:
            if comm.rank == 0:
                save_checkpoint(tmp_path, SavedTraining({}, {}), rank_arrays)
        return scatter_arrays(comm, tmp_path, range(comm.size))

    for rank, found in enumerate(run_ranks(3, run)):
        expected = arrays_of(rank)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, strict=True, err_msg=name)
