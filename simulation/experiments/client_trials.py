"""Trials of an experiment with the real code of owners and aggregator, in this process.

Every owner answers from its records through policy, ledger, randomiser and wire format, and its
answers are admitted as bytes. The run configuration is that of the same trial over Flower, and so
are plan and random words: both give the same row.
"""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confide.aggregator.campaigns import owner_record
from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import TooFew, run_campaign
from confide.aggregator.campaigns.measurements import Measurements
from confide.aggregator.campaigns.planning.run_plans import Plans
from confide.aggregator.campaigns.planning.simulated_settings import simulated_settings
from confide.client.simulated import SimulatedOwner, open_simulated
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.plan import round_of, sign_plan
from confide.protocol.simulated.attendance import Attendance
from confide.protocol.simulated.records import SimulatedData
from confide.protocol.simulated.settings import SIMULATION_KEY
from confide.simulation.defaults import run_defaults
from confide.simulation.evaluate.repeated import Row
from confide.simulation.experiments.cell_trial import MEASURES, owners_of
from confide.simulation.experiments.cells import ExperimentCell
from confide.simulation.experiments.flower_trials import campaign_row, run_config

# Owners leave because the population says so, in every trial.
_departures = logging.getLogger(owner_record.__name__)


def client_trial(cell: ExperimentCell, data: SimulatedData, trial: int) -> Row:
    """Run one trial; a campaign that cannot promise anything, or has no answers, says why."""
    owners = owners_of(cell.terms, data)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.callback(_departures.setLevel, _departures.level)
        _departures.setLevel(logging.ERROR)
        try:
            config = run_defaults() | run_config(cell, trial)
            config, _ = simulated_settings(config, owners=owners)
            people = [
                open_simulated(Path(folder), owner=owner, owners=owners, config=config)
                for owner in range(owners)
            ]
            for one in people:
                stack.callback(one.ledger.close)
            return _row(config, people)
        except (BadInput, TooFew) as error:
            return dict.fromkeys(MEASURES) | {"reason": f"refused: {error}"}


def _row(config: dict[str, Any], people: list[SimulatedOwner]) -> Row:
    """Run the one campaign of a configuration, and measure its certificate."""
    owners = len(people)
    plans = Plans(config, run=0, owners=owners)
    (name,) = plans.names
    plan = plans.make(name)
    signed, attendance = sign_plan(plan, SIMULATION_KEY), Attendance.of(config, owners=owners)
    entropy = SeededEntropy("release", int(config["seed"]))

    def ask(query: bytes) -> Iterator[Sent]:
        missing, late = (draw(round_of(query)) for draw in (attendance.missing, attendance.late))
        for number, owner in enumerate(people):
            if not missing[number]:
                answer = owner.answer(signed, query)
                # A late answer was drawn and charged, and arrives when the round is over.
                if not late[number]:
                    yield Sent(number.to_bytes(8, "big"), answer)

    outcome = run_campaign(
        plan,
        ask,
        draw=lambda mechanism, histogram, rank: mechanism.release(histogram, rank, entropy),
    )
    measured = Measurements(config, owners=owners)
    return campaign_row(outcome.certificate, measured)
