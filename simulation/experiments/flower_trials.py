"""Trials of an experiment over Flower: each is a run of a federation on this machine."""

import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide.aggregator.campaigns.measurements import Measurements
from confide.aggregator.campaigns.planning.simulated_settings import simulated_settings
from confide.protocol.certificate import Certificate
from confide.protocol.methods.counts.central import TRUSTED, CentralTerms
from confide.protocol.simulated.records import SimulatedData
from confide.simulation.defaults import run_defaults
from confide.simulation.evaluate.calibrated import Calibrated
from confide.simulation.evaluate.repeated import Row
from confide.simulation.experiments.cell_trial import LEAST_TESTED, MEASURES, owners_of
from confide.simulation.experiments.cells import ExperimentCell

if TYPE_CHECKING:
    from confide.simulation.experiments.runner import Block, Done


def over_flower(blocks: "Iterable[Block]", data: dict[str, SimulatedData]) -> "Iterator[Done]":
    """Run blocks one after the other over one SuperLink, a node an owner."""
    # Nothing else of an experiment needs a federation.
    from confide.simulation.federation.harness import federation

    with federation() as flower, tempfile.TemporaryDirectory() as folder:
        for block in blocks:
            rows: list[tuple[Row, float]] = []
            owners = owners_of(block.cell.terms, data[block.cell.population])
            for trial in block.trials:
                began = time.perf_counter()
                config = run_config(block.cell, trial) | {"output": folder}
                flower.run(nodes=owners, config=config, tick=lambda: None)
                file = Path(folder) / f"{config['campaigns'].replace(':', '-')}.json"
                rows.append((_row(json.loads(file.read_text())), time.perf_counter() - began))
                file.unlink()
            yield block, rows


def run_config(cell: ExperimentCell, trial: int) -> dict[str, Any]:
    """The run configuration of a trial: the records of the same trial in process."""
    setting: Any = cell.setting
    # The draw of records and the randomisers of owners have one seed here; the latter also have the
    # plan's digest in their names.
    config = cell.terms.config(cell.seeds(trial)[0])
    config |= {"score": cell.score, "alpha": setting.alpha, "epsilon": setting.epsilon}
    config |= {"records": cell.n, "minimum-reports": 0}
    if isinstance(setting, Calibrated):
        config["campaigns"] = f"{setting.method}:{setting.variant}"
        config |= {key.replace("_", "-"): value for key, value in setting.settings.items()}
    else:
        # It certifies nothing, and a campaign says so.
        config |= {"campaigns": f"{CentralTerms.method}:{TRUSTED}", "mechanism": setting.variant}
    return config


def check_config(cell: ExperimentCell, data: SimulatedData) -> None:
    """Refuse a cell that Flower would refuse when the run has begun."""
    simulated_settings(run_defaults() | run_config(cell, 0), owners=owners_of(cell.terms, data))


def campaign_row(certificate: Certificate, measured: Measurements) -> Row:
    """The row of a trial from a certificate; the run of a federation writes the same of it."""
    found = {**asdict(certificate), "channel": certificate.mechanism, **measured.of(certificate)}
    return _row(found | {"owners": measured.by_owner(certificate)})


def _row(found: dict[str, Any]) -> Row:
    """A row of a trial from what a run wrote; measures that it has under other names."""
    owners = [
        one["coverage"]
        for one in found.get("owners", ())
        if one.get("coverage") is not None and one["test_records"] >= LEAST_TESTED
    ]
    named = {
        "certified_level": found["level"],
        "reports": found["n"],
        "exact_epsilon": found["epsilon"],
        "trivial": found["threshold"] >= 1,
        "least_owner_coverage": min(owners, default=None),
    }
    return {name: (found | named).get(name) for name in MEASURES}
