"""Cards of calibrations in process, repeatable, and marked like those of real ones."""

from dataclasses import replace
from typing import Any

import confide
from confide.protocol.cards.card import Card
from confide.protocol.exact.sampling import OPERATING_SYSTEM
from confide.simulation.arrays.calibrate import Calibration
from tests.support.cards.cards import KEY


def calibrated(results: Any, truth: Any, **settings: Any) -> Calibration:
    """Calibrate with a seed, and mark the certificate as unseeded, like that of a real campaign."""
    made = confide.calibrate(results, truth, **{"epsilon": 4.0, "seed": 1} | settings)
    assert made.outcome is not None
    certificate = replace(made.certificate, randomness=OPERATING_SYSTEM)
    return replace(
        made, certificate=certificate, outcome=replace(made.outcome, certificate=certificate)
    )


def calibrated_card(results: Any, truth: Any, **settings: Any) -> Card:
    return calibrated(results, truth, **settings).card(KEY)
