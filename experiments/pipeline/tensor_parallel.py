"""What PyTorch's `parallelize_module` does on two ranks with Gloo, with parameters as the training loop needs them.

    python experiments/pipeline/tensor_parallel.py [--smoke]

Each rank holds its part of a divided layer as a plain float32 parameter, and makes it a `DTensor` in the forward pass.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "common"))

from run_ranks import run_ranks  # noqa: E402

WIDTHS = (64, 256, 1024)
BATCH, N_STEPS = 128, 20


def compare(timeout_s: float, widths: list[int]) -> None:
    """On both ranks: losses and CPU times of an MLP, whole and divided; then the wait for a rank that has left."""
    import torch
    import torch.distributed as dist
    from mpi4py import MPI
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.func import functional_call

    world, timeout = MPI.COMM_WORLD, timedelta(seconds=timeout_s)
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if world.rank == 0 else None
    port = world.bcast(store.port if store else 0)
    store = store or dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size, timeout=timeout)
    mesh = DeviceMesh("cpu", list(range(world.size)))

    class Divided(nn.Module):
        """A module whose parameters are the parts of this rank."""

        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            parallelize_module(module, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}, src_data_rank=None)
            self.module, self.forms = module, dict[str, Any]()
            for name, parameter in list(module.named_parameters()):
                if isinstance(parameter, DTensor):
                    self.forms[name] = parameter.placements, parameter.shape, parameter.stride()
                    owner, _, leaf = name.rpartition(".")
                    own = nn.Parameter(parameter.to_local().detach().clone())
                    module.get_submodule(owner).register_parameter(leaf, own)

        def forward(self, x: torch.Tensor) -> Any:
            parts = dict(self.module.named_parameters())
            tensors = {
                name: DTensor.from_local(parts[name], mesh, places, run_check=False, shape=shape, stride=stride)
                for name, (places, shape, stride) in self.forms.items()
            }
            return functional_call(self.module, tensors, (x,))

    def mlp(width: int) -> nn.Module:
        torch.manual_seed(1)
        hidden = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        return nn.Sequential(*hidden, nn.Linear(width, 4))

    lines = []
    for width in widths:
        x, y = torch.randn(BATCH, width, generator=torch.Generator().manual_seed(0)), torch.arange(BATCH) % 4
        losses, cpu_ms = [], []
        for module in (mlp(width), Divided(mlp(width))):
            optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
            found, times = [], []
            for _ in range(N_STEPS):
                started = time.thread_time()
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(module(x), y)
                loss.backward()
                optimizer.step()
                found.append(loss.item())
                times.append((time.thread_time() - started) * 1e3)
            losses.append(found)
            cpu_ms.append(statistics.median(times))
        if world.rank == 0:
            difference = max(abs(a - b) for a, b in zip(*losses, strict=True))
            row = f"| {width} | {losses[0][0]:.4f}, {losses[0][-1]:.4f} | {difference:.1e} |"
            lines.append(f"{row} {cpu_ms[0]:.1f} | {cpu_ms[1]:.1f} |")
    world.Barrier()
    if world.rank == 1:
        dist.destroy_process_group()  # as after an error in its step
        world.Barrier()
        return
    started = time.perf_counter()
    try:
        module(x)
        end = "no error"
    except RuntimeError as error:
        end = str(error).partition("\n")[0]
    lines.append(f"\nrank 0 waits {time.perf_counter() - started:.0f} s for a rank that has left: {end}")
    Path("result.txt").write_text("\n".join(lines))
    world.Barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short form")
    parser.add_argument("--ranks", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    widths = list(WIDTHS[:1] if options.smoke else WIDTHS)
    if options.ranks:
        compare(options.ranks, widths)
        return
    print("| width | first and last loss | largest difference | CPU time of a step, whole, ms | divided, ms |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        smoke = ["--smoke"] if options.smoke else []
        timeout_s = "3" if options.smoke else "60"
        run_ranks(2, HERE / "tensor_parallel.py", "--ranks", timeout_s, *smoke, folder=Path(folder))
        print(Path(folder, "result.txt").read_text())


if __name__ == "__main__":
    main()
