"""Verify cards of the track full-data with their plan, if they are of a campaign."""

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.counts.full_data import full_data
from confide.protocol.cards.verify.findings import number
from confide.protocol.cards.verify.tracks.base import TrackRules, register
from confide.protocol.cards.verify.tracks.central import counted_records, edges
from confide.protocol.methods.base import FULL_DATA
from confide.protocol.methods.counts.full_data import FullDataTerms
from confide.protocol.plan import Plan


def _stated(plan: Plan) -> dict[str, Layer]:
    """Return the fields of a plan that calibrates on the records of a training."""
    terms = FullDataTerms.of(plan.terms)
    return {
        "contract": {
            "kind": "marginal",
            "adjacency": "replace-one",
            "unit": "record",
            "name": plan.campaign,
            "coverage": float(1 - number(plan.alpha)),
            "beta": terms.beta,
        },
        "training": {
            "noise_multiplier": terms.training_noise,
            "sampling_rate": terms.training_rate,
            "steps": terms.training_steps,
        },
        "calibration": {
            "variant": plan.variant,
            "mechanism": terms.mechanism,
            "bins": terms.bins,
            "grid": terms.grid,
            "epsilon": plan.epsilon,
            "delta": plan.privacy_delta,
            "noise_variance": terms.noise_variance,
        },
    }


register(
    FULL_DATA,
    TrackRules(
        unit="records",
        decide=full_data,
        stated=_stated,
        counted=counted_records("calibration", lambda formal: formal["calibration"]),
        compared=edges,
        # A training and a calibration in one place have a card of this track, too.
        without_plan=True,
    ),
)
