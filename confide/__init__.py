"""Conformal prediction calibrated on data that nobody has to share.

The public names of the project, for notebooks and scripts; they are loaded when they are asked for,
so that importing the package costs nothing. Everything else is internal and may change.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide import metrics, plots
    from confide.aggregator.campaigns.driver import run_campaign
    from confide.protocol.cards.card import Card, read_card
    from confide.protocol.cards.verify.card import verify
    from confide.protocol.errors import BadInput
    from confide.protocol.plan import Plan, open_plan, sign_plan
    from confide.protocol.prediction.batches import read_model
    from confide.protocol.prediction.predictor import CardWarning, Predictor
    from confide.protocol.scores.registry import find_score
    from confide.simulation.arrays.calibrate import Calibration, calibrate
    from confide.simulation.arrays.evaluate import Evaluation, compare, evaluate
    from confide.simulation.planning import plan

# A Flower bundle carries no symbolic links: there the packages lie beside this one.
if not Path(__file__).with_name("protocol").exists():
    __path__.append(str(Path(__file__).parent.parent))

_HOMES = {
    "confide.aggregator.campaigns.driver": ("run_campaign",),
    "confide.protocol.cards.card": ("Card", "read_card"),
    "confide.protocol.cards.verify.card": ("verify",),
    "confide.protocol.errors": ("BadInput",),
    "confide.protocol.plan": ("Plan", "open_plan", "sign_plan"),
    "confide.protocol.prediction.batches": ("read_model",),
    "confide.protocol.prediction.predictor": ("CardWarning", "Predictor"),
    "confide.protocol.scores.registry": ("find_score",),
    "confide.simulation.arrays.calibrate": ("Calibration", "calibrate"),
    "confide.simulation.arrays.evaluate": ("Evaluation", "compare", "evaluate"),
    "confide.simulation.planning": ("plan",),
}
_MODULES = ("metrics", "plots")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BadInput",
    "Calibration",
    "Card",
    "CardWarning",
    "Evaluation",
    "Plan",
    "Predictor",
    "calibrate",
    "compare",
    "evaluate",
    "find_score",
    "metrics",
    "open_plan",
    "plan",
    "plots",
    "read_card",
    "read_model",
    "run_campaign",
    "sign_plan",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
