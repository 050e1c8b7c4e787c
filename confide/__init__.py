"""Conformal prediction calibrated on data that nobody has to share.

The public names of the project, for notebooks and scripts; they are loaded when they are asked for,
so that importing the package costs nothing. Everything else is internal and may change.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.aggregator.campaigns.driver import run_campaign
    from confide.aggregator.campaigns.plans import make_plan
    from confide.aggregator.procedures.registry import plan_procedure
    from confide.protocol.cards.card import Card, read_card
    from confide.protocol.cards.verify.card import verify
    from confide.protocol.plan import Plan, open_plan, sign_plan
    from confide.protocol.predictor import Predictor
    from confide.protocol.scores.registry import SCORES, find_label_score
    from confide.protocol.scores.scoring import all_scores, true_scores
    from confide.simulation.driver import BitUsers, LabelUsers, drive

# A Flower bundle carries no symbolic links: there the packages lie beside this one.
if not Path(__file__).with_name("protocol").exists():
    __path__.append(str(Path(__file__).parent.parent))

_HOMES = {
    "confide.aggregator.campaigns.driver": ("run_campaign",),
    "confide.aggregator.campaigns.plans": ("make_plan",),
    "confide.aggregator.procedures.registry": ("plan_procedure",),
    "confide.protocol.cards.card": ("Card", "read_card"),
    "confide.protocol.cards.verify.card": ("verify",),
    "confide.protocol.plan": ("Plan", "open_plan", "sign_plan"),
    "confide.protocol.predictor": ("Predictor",),
    "confide.protocol.scores.registry": ("SCORES", "find_label_score"),
    "confide.protocol.scores.scoring": ("all_scores", "true_scores"),
    "confide.simulation.driver": ("BitUsers", "LabelUsers", "drive"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "SCORES",
    "BitUsers",
    "Card",
    "LabelUsers",
    "Plan",
    "Predictor",
    "all_scores",
    "drive",
    "find_label_score",
    "make_plan",
    "open_plan",
    "plan_procedure",
    "read_card",
    "run_campaign",
    "sign_plan",
    "true_scores",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
