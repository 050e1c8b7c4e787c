"""Runs the trials of an experiment that have not run yet: here, on all cores, or on a Ray cluster.

What a trial gives depends on its seeds alone (`confide.simulation.experiments.cells`), so it does
not matter where and in which order trials run.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from confide.protocol.errors import BadInput
from confide.protocol.files import make_folder
from confide.protocol.simulated.records import SimulatedData
from confide.simulation.evaluate.repeated import Row
from confide.simulation.experiments.cell_trial import check_records, population_data, run_trial
from confide.simulation.experiments.cells import ExperimentCell, cells
from confide.simulation.experiments.client_trials import client_trial
from confide.simulation.experiments.experiment import CLIENT, FLOWER, PROCESS, Experiment
from confide.simulation.experiments.flower_trials import check_config, over_flower
from confide.simulation.experiments.journal import Finished, open_journal
from confide.simulation.experiments.results import commit, write_results

# Trials that a worker runs before it hands over: more cost more when they are lost, fewer cost more
# to hand over.
BLOCK = 8
# Blocks that wait at the workers, for each core: enough that none is idle.
WAITING = 3
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


class Block(NamedTuple):
    """Trials of one cell."""

    cell: ExperimentCell
    trials: tuple[int, ...]


Done = tuple[Block, list[tuple[Row, float]]]


@dataclass(frozen=True)
class Workers:
    """Where trials run: `count` workers (None: a core each), of a cluster if there is an address.

    One worker is this process, without Ray.
    """

    count: int | None = None
    ray_address: str | None = None

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise BadInput(f"workers is {self.count}; accepted is at least 1")

    @property
    def here(self) -> bool:
        """Whether trials run in this process, without Ray."""
        return self.count == 1 and self.ray_address is None

    def run(self, blocks: list[Block], data: dict[str, SimulatedData]) -> Iterator[Done]:
        """Run blocks, and yield each when it is done."""
        if self.here:
            yield from ((block, run_block(block, data[block.cell.population])) for block in blocks)
        else:
            yield from _over_ray(self, blocks, data)


def packages(experiment: Experiment, workers: Workers) -> tuple[str, ...]:
    """The packages that trials need where they run, to be looked for before any runs."""
    if experiment.where == FLOWER:
        return "flwr", "ray", "psutil"
    return () if workers.here else ("ray",)


class Ran(NamedTuple):
    """How many trials there are, and how many of them have run."""

    asked: int
    finished: int


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    workers: Workers,
    progress: Callable[[int, int], None] = lambda done, asked: None,
) -> Ran:
    """Run what is missing, keep every trial, and write the results of all that have run.

    `progress` is told how many trials are done, and how many there are. On Ctrl-C the results of
    those that have run are written, and the exception goes on.
    """
    planned = cells(experiment)
    data = {name: population_data(terms) for name, terms in experiment.populations.items()}
    for cell in planned:
        check_records(cell, data[cell.population])
        if cell.where != PROCESS:
            check_config(cell, data[cell.population])
    make_folder(out)
    asked, code = len(planned) * experiment.trials, commit()
    with open_journal(out) as journal:
        blocks = missing(planned, experiment.trials, journal.done)
        done = asked - sum(len(block.trials) for block in blocks)
        progress(done, asked)
        flower = experiment.where == FLOWER
        ran = over_flower(blocks, data) if flower else workers.run(blocks, data)
        try:
            for block, rows in ran if blocks else ():
                for trial, (row, seconds) in zip(block.trials, rows, strict=True):
                    journal.add((block.cell.name, trial), Finished(row, code, seconds))
                done += len(rows)
                progress(done, asked)
        finally:
            finished = write_results(out, experiment, planned, journal=journal)
    return Ran(asked, finished)


def missing(
    planned: list[ExperimentCell], trials: int, done: Iterable[tuple[str, int]]
) -> list[Block]:
    """The trials that have not run, in blocks."""
    known, blocks = {*done}, []
    for cell in planned:
        left = iter([one for one in range(trials) if (cell.name, one) not in known])
        while part := tuple(islice(left, BLOCK)):
            blocks.append(Block(cell, part))
    return blocks


def run_block(block: Block, data: SimulatedData) -> list[tuple[Row, float]]:
    """Run the trials of a block in this process; each has its seconds."""
    found, run = [], client_trial if block.cell.where == CLIENT else run_trial
    for trial in block.trials:
        began = time.perf_counter()
        row = run(block.cell, data, trial)
        found.append((row, time.perf_counter() - began))
    return found


def _over_ray(
    workers: Workers, blocks: list[Block], data: dict[str, SimulatedData]
) -> Iterator[Done]:
    """Run blocks as tasks of Ray; records are sent once to every machine."""
    ray = started_ray(workers)
    try:
        sent = {name: ray.put(one) for name, one in data.items()}
        task = ray.remote(num_cpus=1, max_retries=2)(run_block)
        most = WAITING * (workers.count or int(ray.cluster_resources().get("CPU", 1)))
        left, waiting = iter(blocks), dict[Any, Block]()
        while True:
            for block in islice(left, most - len(waiting)):
                waiting[task.remote(block, sent[block.cell.population])] = block
            if not waiting:
                return
            for finished in ray.wait(list(waiting))[0]:
                yield waiting.pop(finished), ray.get(finished)
    finally:
        ray.shutdown()


def started_ray(workers: Workers) -> Any:
    """Ray, connected to the cluster at the address, or started on this machine for this run."""
    import logging
    import os

    # Nothing is reported to anybody.
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    import ray

    given: dict[str, Any] = {"runtime_env": {"env_vars": ENVIRONMENT}, "log_to_driver": False}
    given |= {"logging_level": logging.ERROR, "configure_logging": True}
    if workers.ray_address is None:
        given |= {"num_cpus": workers.count, "include_dashboard": False, "address": "local"}
    else:
        given["address"] = workers.ray_address
    try:
        ray.init(**given)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BadInput(
            f"ray-address is {workers.ray_address!r}, where no Ray cluster answers: {error}; "
            "accepted is HOST:PORT of its head (`ray start --head`), or none for this machine"
        ) from None
    return ray
