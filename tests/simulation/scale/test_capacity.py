"""Plans of processes and bytes from measured costs."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from confide.protocol.errors import BadInput
from confide.simulation.cli import app
from confide.simulation.scale.arrivals import WEEK, Daily
from confide.simulation.scale.capacity import USED, capacity, held
from confide.simulation.scale.costs import MEASURED, Costs, read_costs

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
    with pytest.raises(
        BadInput, match=r"no costs of 'postgres'.*benchmarks/laboratory/scale.py measure"
    ):
        read_costs(file, "postgres")
    file.write_text(json.dumps({"costs": {"sqlite": asdict(COSTS) | {"visit": -1.0}}}))
    with pytest.raises(BadInput, match="visit is -1"):
        read_costs(file, "sqlite")


def test_the_command_plans_from_given_costs(tmp_path: Path) -> None:
    """Its numbers are those of the costs by hand: 7,000,000 phones in 14 days at an even rate, of
    which each process reads 7,000,000 x 1e-6 seconds in every 2.5."""
    file = tmp_path / "costs.json"
    costs = {"postgres": asdict(replace(COSTS, directory=1e-6)), "sqlite": asdict(COSTS)}
    file.write_text(json.dumps({"costs": costs}))
    given = ["scale", "7000000", "--days", "14", "--swing", "0", "--costs", str(file)]
    run = CliRunner().invoke(app, given)
    assert run.exit_code == 0, run.output
    said = {
        re.sub(r"\s\s+.*", "", line.strip()): line.split()[-1]
        for line in run.output.split("\n")
        if line.strip()
    }
    assert said["visits a second at the busiest time"] == "5.8"
    assert said["server processes of each, 50% used"] == "1"
    assert said["who is enrolled, processors of each process"] == "2.8"
    assert said["answers on disk, GB"] == "2.8"
    assert said["reading of a campaign after a restart, hours"] == "0.19"
    assert "Enrolment breaks first: each process would spend 2.8 processors" in run.output
    assert "holds 1,250,000 owners at 50%" in run.output
    run = CliRunner().invoke(app, [*given, "--database", "sqlite"])
    assert "A restart stands still for 0.2 hours" in run.output
    for words, says in (
        (["scale", "0"], "0 phones come"),
        (["scale", "--swing", "2"], "swing is 2"),
        (["scale", "--database", "mysql"], "no costs of 'mysql'"),
    ):
        refused = CliRunner().invoke(app, words)
        assert refused.exit_code == 2, words
        assert says in " ".join(refused.output.split()), refused.output


def test_the_measured_costs_are_a_plan() -> None:
    """What comes with the package is read for both databases."""
    for engine in ("sqlite", "postgres"):
        assert capacity(read_costs(MEASURED, engine), Daily(phones=1e6)).campaigns == 1
