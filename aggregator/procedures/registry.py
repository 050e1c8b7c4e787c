"""The registry of procedures, which calibrate or train under the terms of each method."""

from collections.abc import Callable, Generator
from typing import Any

from confide.aggregator.procedures import averaging, monitor
from confide.aggregator.procedures.bits import procedure as bits
from confide.aggregator.procedures.counts import central_parts
from confide.aggregator.procedures.counts.central import Draw
from confide.aggregator.procedures.full_data import procedure as full_data
from confide.aggregator.procedures.labels import procedure as labels
from confide.aggregator.procedures.pairs import procedure as pairs
from confide.protocol.errors import BadInput
from confide.protocol.methods.bits import BitTerms
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.counts.full_data import FullDataTerms
from confide.protocol.methods.labels.pairs import PairTerms
from confide.protocol.methods.labels.terms import LabelTerms
from confide.protocol.methods.monitor import MonitorTerms
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan

# Yields queries, is sent their tallies, returns a certificate (or, for a training, the weights).
Procedure = Generator[Any, Any, Any]
# Makes the procedure of a plan; the draw makes a trusted release and keeps it.
Maker = Callable[[Plan, Draw], Procedure]

PROCEDURES: dict[str, Maker] = {}


def register(method: str, maker: Maker) -> None:
    """Register the procedure of a method."""
    if PROCEDURES.setdefault(method, maker) is not maker:
        raise BadInput(f"method {method!r} has a procedure already; accepted is another name")


def plan_procedure(plan: Plan, draw: Draw) -> Procedure:
    """Make the procedure of a plan."""
    return PROCEDURES[plan.method](plan, draw)


register(BitTerms.method, lambda plan, _: bits.of_plan(plan))
register(LabelTerms.method, lambda plan, _: labels.of_plan(plan))
register(PairTerms.method, lambda plan, _: pairs.of_plan(plan))
register(CentralTerms.method, central_parts.of_plan)
register(FullDataTerms.method, full_data.of_plan)
register(MonitorTerms.method, lambda plan, _: monitor.of_plan(plan))
register(TrainingTerms.method, lambda plan, _: averaging.of_plan(plan))
