"""Searches that lose a whole host at a random moment: switched off, cut off, or frozen.

Run it as root in the project's folder: python experiments/chaos/hosts.py [--rounds 10] [--seed 0]
Each round is a search with ``--restarts`` and ``--hostfile`` on three hosts, which are network namespaces of this
machine. A fourth one runs mpi-opt and mpirun. Rank 0 is on the first host, which may be the lost one. A round passes if
the search ends with status 0 and each trial is complete exactly once. Prints a table, and ends with status 1 if a round
has failed. Needs what `tests/slurm/cluster.py` needs.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from chaos import LIMIT_S, SILENCE_S, START_S, STUDY
from launched import end_in_order, query

from mpi_learn.settings.yaml_file import dumped

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.slurm.cluster import LOGIN, NODES, SlurmCluster, missing, slurm_cluster, wait_until  # noqa: E402
from tests.slurm.conftest import ENVIRONMENT  # noqa: E402

SLOTS, TRIALS, RANK_SILENCE_S, BACK_S = 3, 150, 6.0, 60.0


def _frozen_for_a_minute(cluster: SlurmCluster, node: str) -> None:
    cluster.freeze(node)
    time.sleep(BACK_S)
    cluster.freeze(node, thaw=True)


FAULTS: dict[str, Callable[[SlurmCluster, str], None]] = {
    "switched off": SlurmCluster.power_off,
    "cut off": SlurmCluster.cut,
    "frozen": SlurmCluster.freeze,
    "frozen for a minute": _frozen_for_a_minute,
}


def space() -> dict:
    """The content of ``space.yaml``: four blocks of two ranks, of which one is on two hosts."""
    return {
        "study": STUDY,
        "store": f"sqlite:///{STUDY}.db",
        "objective": f"{HERE / 'objectives.py'}:agreed",
        "space": {"x": {"type": "real", "low": 0.0, "high": 1.0}},
        "search": {"strategy": "random", "trials": TRIALS, "seed": 3},
        "blocks": {"size": 2, "silence": RANK_SILENCE_S},
        "trial": {"retries": 20},
    }


def one_round(cluster: SlurmCluster, draw: random.Random, how: str, node: str) -> dict:
    """Runs a search whose host `node` is lost; returns its problems and the time until the next trial has started."""
    folder, remote = cluster.folder, [sys.executable, str(HERE / "remote_shell.py")]
    database = folder / f"{STUDY}.db"
    (folder / "space.yaml").write_text(dumped(space()))
    (folder / "hostfile").write_text("".join(f"{name} slots={SLOTS}\n" for name in NODES))
    agent = folder / "agent"
    agent.write_text(f'#!/bin/sh\nexec {" ".join(remote)} "$@"\n')
    agent.chmod(0o755)
    environment = ENVIRONMENT | {
        "PRTE_MCA_plm_ssh_agent": str(agent),
        "MPI_LEARN_SILENCE_S": str(SILENCE_S),
        "MPI_LEARN_START_S": str(START_S),
    }
    servers = [cluster.open(*remote, "serve", node=name, env=environment) for name in (LOGIN, *NODES)]
    command = ["mpi-opt", "search", "space.yaml", "-n", SLOTS * len(NODES), "--restarts", 50, "--hostfile", "hostfile"]
    with (folder / "out.txt").open("w") as out:
        search = cluster.open(*command, env=environment, stdout=out, stderr=subprocess.STDOUT)
    begun = "SELECT 1 FROM trials WHERE state = 'complete' LIMIT 1"
    wait_until(lambda: query(database, begun) or search.poll() is not None, LIMIT_S, "no trial is complete")
    time.sleep(draw.uniform(0, 8))
    at = time.time()
    FAULTS[how](cluster, node)
    try:
        status: object = search.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        status = "hung"
        search.kill()
    for server in servers:  # one on a frozen host is stopped, and would keep the cluster from ending
        server.kill()
    problems = [] if status == 0 else [f"status {status}"]
    rows = query(database, "SELECT number, state FROM trials ORDER BY number")
    problems += [] if rows == [(number, "complete") for number in range(TRIALS)] else [f"trials: {rows}"]
    odd = "SELECT trial_id, count(*) FROM attempts WHERE outcome = 'complete' GROUP BY trial_id HAVING count(*) != 1"
    problems += [f"trial {number % 10**9} was complete {n} times" for number, n in query(database, odd)]
    restarts = query(database, "SELECT detail FROM events WHERE kind = 'search_restarted'")
    if problems:
        print((folder / "out.txt").read_text()[-5000:])
    return {"problems": problems, "next_s": next_s(database, at), "restarts": [detail for (detail,) in restarts]}


def next_s(database: Path, at: float) -> float:
    """Seconds from `at` until one of the trials that were interrupted has started again; 0 if there was none."""
    attempts = [
        (trial, datetime.fromisoformat(text).timestamp(), outcome)
        for trial, text, outcome in query(database, "SELECT trial_id, started_at, outcome FROM attempts")
    ]
    interrupted = {trial for trial, start, outcome in attempts if start < at and outcome != "complete"}
    return min((start - at for trial, start, _ in attempts if trial in interrupted and start > at), default=0.0)


def table(rounds: list[dict]) -> str:
    """The results of all rounds."""
    times = [one["next_s"] for one in rounds]
    n_passed, again_s = (
        sum(not one["problems"] for one in rounds),
        f"{statistics.median(times):.1f} s, {max(times):.1f} s",
    )
    lines = [
        f"{n_passed} of {len(rounds)} searches finished with each trial complete exactly once",
        f"an interrupted trial started again after (median, longest) {again_s}",
        "",
        "| host | lost | searches | restarts | an interrupted trial started again after: median, longest |",
        "|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for one in rounds:
        groups["of rank 0" if one["node"] == NODES[0] else "another", one["how"]].append(one)
    for (where, how), found in sorted(groups.items()):
        times = [one["next_s"] for one in found]
        n_restarts = sum(len(one["restarts"]) for one in found)
        lines.append(
            f"| {where} | {how} | {len(found)} | {n_restarts} | {statistics.median(times):.1f} s, {max(times):.1f} s |"
        )
    return "\n".join(lines)


def main() -> None:
    """Runs rounds and prints the table."""
    end_in_order()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--how", choices=list(FAULTS))
    parser.add_argument("--node", choices=list(NODES))
    options = parser.parse_args()
    if why := missing():
        sys.exit(f"no hosts here: {why}")
    rounds = []
    for number in range(options.rounds):
        draw = random.Random(options.seed + number)
        how, node = draw.choice(list(FAULTS)), draw.choice(NODES)
        how, node = options.how or how, options.node or node
        with tempfile.TemporaryDirectory(prefix="hosts-") as name, slurm_cluster(Path(name)) as cluster:
            one = one_round(cluster, draw, how, node) | {"how": how, "node": node}
        rounds.append(one)
        print(number, node, how, one, flush=True)
    print(f"\n{table(rounds)}")
    sys.exit(any(one["problems"] for one in rounds))


if __name__ == "__main__":
    main()
