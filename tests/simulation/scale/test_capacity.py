"""Plans of processes and bytes from measured costs."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from confide.protocol.errors import BadInput
from confide.simulation.scale.arrivals import WEEK, Daily
from confide.simulation.scale.capacity import USED, capacity, held
from confide.simulation.scale.costs import Costs, read_costs

COSTS = Costs(
    visit=0.004,
    refused=0.002,
    transaction=0.005,
    batch=0.0005,
    foreign=0.0001,
    tally=0.00005,
    wire=6_000,
    disk=400,
    enrolled=150,
    memory=32,
)


def test_a_fleet_takes_processes_for_its_busiest_time() -> None:
    """100 phones a second and twice that at noon: 0.8 of a processor, so two at half of each."""
    plan = capacity(COSTS, Daily(phones=100 * WEEK, swing=1.0))
    assert (plan.visits, plan.processes, plan.campaigns) == (200.0, 2, 1)
    assert plan.held == pytest.approx(200 * (0.0005 + 0.0001))
    assert plan.disk == pytest.approx(400 * 100 * WEEK)


def test_a_round_that_is_held_too_long_needs_several_campaigns() -> None:
    """More processes read each other's answers, so beyond some rate no number is enough."""
    fleet = Daily(phones=1_000 * WEEK, swing=0.0)
    plan = capacity(COSTS, fleet)
    assert plan.campaigns > 1
    assert plan.processes is not None
    assert held(COSTS, visits=1_000.0, processes=8) > USED
    assert held(COSTS, visits=1_000.0 / plan.campaigns, processes=plan.processes) <= USED
    alone = capacity(replace(COSTS, foreign=0.0, batch=0.0001), fleet)
    assert alone.campaigns == 1


def test_costs_are_read_from_measurements(tmp_path: Path) -> None:
    """A file without the engine, or with a cost that is none, is refused with what is accepted."""
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({"costs": {"sqlite": asdict(COSTS)}}))
    assert read_costs(file, "sqlite") == COSTS
    with pytest.raises(BadInput, match=r"no costs of 'postgres'.*benchmarks/scale.py measure"):
        read_costs(file, "postgres")
    file.write_text(json.dumps({"costs": {"sqlite": asdict(COSTS) | {"visit": -1.0}}}))
    with pytest.raises(BadInput, match="visit is -1"):
        read_costs(file, "sqlite")
