"""Plans of a training and of the calibrations of its model."""

from typing import Any

import pytest

from confide.aggregator.campaigns.planning.plans import make_plan
from confide.aggregator.cli.plan_options import with_defaults
from confide.protocol.plan import Plan
from confide.protocol.simulated.settings import ALWAYS
from tests.support.training.federated_trainings import SETTINGS

RECORDS = 10_000


def plan(campaign: str, training: Plan | None = None, **given: Any) -> Plan:
    values = {"campaign": campaign, "labels": 3, "records": RECORDS} | given
    return make_plan(
        campaign, with_defaults(values), title=campaign, valid=ALWAYS, training=training
    )


@pytest.mark.parametrize(("share", "trained"), [(0.3, 3_000), (0.8, 8_000)])
def test_plans_of_a_chain_expect_their_own_share_of_the_records(share: float, trained: int) -> None:
    """Stages of a search by bits, and what one owner may send, are planned by this number."""
    training = plan("training:federated-averaging", **SETTINGS | {"train-share": share})
    calibration = plan("bits:certified", training, model="00" * 32, **{"train-share": share})
    assert (training.expected_records, calibration.expected_records) == (trained, RECORDS - trained)


def test_a_plan_without_shares_expects_all_records() -> None:
    """Also where the model was not trained by a campaign."""
    training = plan("training:federated-averaging", **SETTINGS)
    assert training.expected_records == RECORDS
    assert plan("bits:certified", model="00" * 32).expected_records == RECORDS
