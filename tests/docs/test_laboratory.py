"""Numbers in the sentences of scale.md, advice.md, attacks.md and experiments.md."""

import json
import re
from functools import partial
from typing import Any

import pytest

from confide.client.transport.grpc_client import SUBMIT_SECONDS
from confide.simulation.advice import advise, bit_law, hint
from confide.simulation.advice.question import ROUNDS
from confide.simulation.data.synthetic import SPREAD
from confide.simulation.experiments.cell_trial import LEAST_TESTED
from confide.simulation.experiments.runner import BLOCK
from confide.simulation.scale.arrivals import Daily
from confide.simulation.scale.capacity import DIRECTORY_SECONDS, USED, capacity, held
from confide.simulation.scale.costs import MEASURED, Costs, read_costs
from confide.simulation.scale.queueing import CONNECTIONS, LONGEST_PAUSE, PATIENCE, PLACES
from tests.support.repository.pages_of_docs import says
from tests.support.repository.places import ROOT

ENGINES = ("sqlite", "postgres")


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table whose first heading this is."""
    text = (ROOT / "docs" / page).read_text()
    lines = text[text.index(f"| {heading} |") :].split("\n\n")[0].split("\n")[2:]
    return [[cell.strip() for cell in line.strip("| \n").split("|")] for line in lines if line]


@pytest.fixture(scope="module")
def costs() -> dict[str, Costs]:
    return {name: read_costs(MEASURED, name) for name in ENGINES}


def test_the_costs_of_the_plan_are_those_of_the_file(costs: dict[str, Costs]) -> None:
    """Every cost of scale.md, in both columns, and the load at which they were measured."""
    measured = json.loads(MEASURED.read_text())
    assert rows("scale.md", "cost") == [
        [name, *(f"{getattr(costs[engine], name):.3g}" for engine in ENGINES)]
        for name in measured["costs"]["sqlite"]
    ]
    assert says("scale.md", f"(load {measured['load']:.0f})")


def test_the_plan_is_the_computed_one(costs: dict[str, Costs]) -> None:
    """Every cell of the table of fleets."""
    found = []
    for engine in ENGINES:
        for phones in (10**6, 10**7, 10**8):
            plan = capacity(costs[engine], Daily(phones=phones))
            found.append([f"{phones:,}", engine, f"{plan.visits:.0f}", f"{plan.campaigns}"])
            found[-1] += [f"{plan.processes}", f"{plan.held:.0%}"]
            found[-1] += [f"{one / 1e9:.3g}" for one in (plan.disk, plan.enrolled, plan.wire)]
            found[-1] += [f"{plan.memory / 1e9:.2g}"]
            found[-1] += [f"{one / 3_600:.2g}" for one in (plan.tally, plan.restart)]
    assert rows("scale.md", "phones") == found


def visits(each: Costs, processes: int) -> float:
    """The most visits a second of one campaign with so many processes."""
    return min(processes / each.visit, 1 / held(each, visits=1, processes=processes))


def test_what_breaks_first_is_the_computed_one(costs: dict[str, Costs]) -> None:
    """scale.md: the owners whose enrolment takes a processor, how long a restart reads, the tally,
    and the processes beyond which more of them take fewer visits."""
    owners = {name: DIRECTORY_SECONDS / each.directory for name, each in costs.items()}
    assert says("scale.md", f"{owners['postgres']:,.0f} on PostgreSQL")
    assert says("scale.md", f"{owners['sqlite']:,.0f} on SQLite")
    large, small = (costs["postgres"].foreign * phones for phones in (1e8, 1e6))
    assert says("scale.md", f"{large / 60:.0f} minutes at 1e8, {small:.0f} seconds at 1e6")
    assert 0.45 < costs["postgres"].tally * 1e8 / 3_600 < 0.55
    assert says("scale.md", "**The tally**, half an hour for 1e8 messages")
    counts = range(1, 33)
    most = {name: max(counts, key=partial(visits, each)) for name, each in costs.items()}
    assert most == {"sqlite": 20, "postgres": 13}
    assert says("scale.md", "beyond thirteen processes on PostgreSQL, and twenty on SQLite")
    assert says("scale.md", f"beyond {PLACES:,} open calls")
    assert says("scale.md", f"connections beyond {CONNECTIONS:,}")
    assert says("scale.md", f"pauses up to {LONGEST_PAUSE:.0f} seconds")
    assert (PATIENCE, SUBMIT_SECONDS, USED) == (600, 900, 0.5)


def test_sentences_of_the_advice_are_constants_of_the_code() -> None:
    """advice.md: rounds, errors, and when another method is named."""
    looks = bit_law._LOOKS
    assert says("advice.md", f"{looks[0]} to 200 times: until the standard error of the mean")
    assert says("advice.md", f"mean size is {bit_law._ERROR:.0%}".replace("%", " %"))
    assert says("advice.md", f"{advise.ROOM} times the size without privacy")
    assert says("advice.md", f"sets at least {hint.MATTERS * 100:.0f} % smaller")
    assert says("advice.md", f"certified bits take {ROUNDS}")
    assert says("advice.md", f"whose logits have spread {SPREAD}")


def test_the_summary_of_the_advice_is_that_of_its_table() -> None:
    """advice.md: largest and mean distance of the ratios, and how often the choice is the best."""
    text = (ROOT / "docs" / "advice.md").read_text()
    table = text[text.index("| file | n | epsilon |") :].split("\n\n")[0]
    apart = [abs(float(one) - 1) for one in re.findall(r"\((\d\.\d\d)\)", table)]
    said = re.search(r"off by more than (0\.\d+); the mean distance from 1 is (0\.\d+)", text)
    assert said
    assert float(said[1]) == pytest.approx(max(apart), abs=0.006)
    assert float(said[2]) == pytest.approx(sum(apart) / len(apart), abs=0.003)
    local = [[row[3], row[4], row[6]] for row in rows("advice.md", "file")]
    pairs = [[list(map(float, re.findall(r"\d+\.\d+", one)[:2])) for one in row] for row in local]
    losses = [min(row)[1] / min(each[1] for each in row) - 1 for row in pairs]
    assert len(losses) == 24
    assert sum(loss < 1e-9 for loss in losses) >= 22
    assert max(losses) == pytest.approx(0.045, abs=0.003)


def test_sentences_of_the_experiments_are_constants_of_the_code() -> None:
    """experiments.md: trials that a kill loses, and owners that are counted."""
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight"]
    assert says("experiments.md", f"at most {words[BLOCK]} for each worker")
    assert says("experiments.md", f"owners with at least {LEAST_TESTED} test records")


def test_no_failure_in_so_many_campaigns_bounds_their_share() -> None:
    """attacks.md: 0 of 200, with Clopper and Pearson's upper limit at 95 %."""
    found: list[Any] = [row for row in rows("attacks.md", "method") if row[1] == "colluding"]
    allowed = [row for row in found if row[4] != "0"]
    assert len(allowed) == 6
    assert {row[5] for row in allowed} == {"0 of 200"}
    assert says("attacks.md", f"at most {100 * (1 - 0.05 ** (1 / 200)):.1f} % of such campaigns")
