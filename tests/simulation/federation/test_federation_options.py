"""The options of `confide federation` reach the plans of its campaigns."""

from confide.aggregator.campaigns.planning.run_plans import Plans
from confide.aggregator.campaigns.planning.simulated_settings import simulated_settings
from confide.protocol.methods.bits import BitTerms
from confide.protocol.methods.labels.terms import LabelTerms
from confide.simulation.defaults import run_defaults
from confide.simulation.federation.campaign_options import CampaignOptions


def test_what_a_campaign_asks_of_owners_and_classes_is_in_its_plan() -> None:
    """Floors, joint promises and mixtures are options like those of `evaluate`."""
    asked = CampaignOptions(
        campaigns="labels:per-owner labels:class-conditional bits:certified",
        joint=True,
        class_floor=7,
        owner_floor=300,
        mixture="equal-owners",
        smallest_owner=150,
    )
    asked.check(["--joint", "--class-floor", "--owner-floor", "--mixture", "--smallest-owner"])
    settings, _ = simulated_settings(run_defaults() | asked.config(), owners=3)
    owners, classes, bits = (plan.terms for plan in Plans(settings, run=0, owners=3).drafts)
    each, of_labels = LabelTerms.of(owners), LabelTerms.of(classes)
    assert (each.joint, each.part_floor) == (True, 300)
    assert (of_labels.joint, of_labels.class_floor) == (True, 7)
    certified = BitTerms.of(bits)
    assert (certified.planned_mixture, certified.equal_owners) == (True, True)
    assert certified.smallest_owner == 150
