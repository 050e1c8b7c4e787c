"""The formal layer of a central campaign: its one configuration, and the threshold released."""

from dataclasses import asdict, replace

from confide.aggregator.campaigns.driver import Outcome
from confide.aggregator.cards.contracts.contract import Configuration, Contract, decimal
from confide.aggregator.cards.contracts.search import search
from confide.aggregator.cards.released import campaign_released, decision
from confide.aggregator.quantiles.base import ADD_REMOVE
from confide.protocol.cards.card import Layer
from confide.protocol.certificate import CentralCertificate
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.plan import Plan


def central_formal(plan: Plan, outcome: Outcome) -> Layer:
    """Make the formal layer of a campaign; the searched grid holds the plan's configuration alone.

    `complete` tells whether every owner answered every round; if not, coverage still holds and the
    inflation bound does not.
    """
    terms, certificate = CentralTerms.of(plan.terms), CentralCertificate.of(outcome.certificate)
    contract = Contract(
        plan.campaign,
        coverage=float(1 - decimal(plan.alpha)),
        beta=terms.beta,
        epsilon_train=0.0,
        epsilon_calibration=terms.epsilon,
        delta=terms.privacy_delta,
        adjacency=certificate.adjacency,
        unit=certificate.unit,
        failure_probability=terms.delta or None,
    )
    configuration = Configuration(
        mechanism=terms.mechanism,
        gamma=float(1 - decimal(plan.alpha) + decimal(0.0 if terms.delta else terms.beta)),
        n=max(certificate.n, 1),
        bins=terms.bins,
        epsilon_train=0.0,
        delta_train=0.0,
        epsilon_calibration=terms.epsilon / terms.shares,
        delta_calibration=terms.privacy_delta / terms.shares,
        noised_by="aggregator" if terms.shows_exact_counts else "owners",
        owners=max(certificate.owners, 1),
        noise_variance=terms.noise_variance,
        grid=terms.grid,
        moved=1 if terms.shows_exact_counts else terms.moved,
    )
    formal = search(_of_a_part(contract, terms), [configuration])
    if terms.by:
        formal |= _divided(formal, contract, certificate, terms=terms)
    released = campaign_released(plan, certificate)
    failed = [*formal["failed"], *(name for name, holds in released.flags().items() if not holds)]
    about = {"bin": certificate.bin, "complete": certificate.inflation is not None}
    return formal | {
        "plan": plan.to_bytes().hex(),
        "released": released.layer() | about,
        "flags": formal["flags"] | released.flags(),
        "failed": failed,
        "decision": decision(failed),
    }


def _of_a_part(contract: Contract, terms: CentralTerms) -> Contract:
    """The contract of one of the releases: a private part has its share, as one record more."""
    if terms.shares == 1:
        return contract
    return replace(
        contract,
        adjacency=ADD_REMOVE,
        epsilon_calibration=contract.epsilon_calibration / terms.shares,
        delta=contract.delta / terms.shares,
    )


def _divided(
    formal: Layer, contract: Contract, certificate: CentralCertificate, *, terms: CentralTerms
) -> Layer:
    """What the card says of parts; the configuration is that of a part which had all records.

    Changes that would make it feasible are not suggested: they would be for one part.
    """
    parts = [
        {name: value for name, value in asdict(one).items() if name != "covered"}
        for one in certificate.strata
    ]
    total = formal["total"]
    totals = {name: float(decimal(total[name]) * terms.shares) for name in ("epsilon", "delta")}
    return {
        "contract": formal["contract"]
        | {
            "adjacency": contract.adjacency,
            "epsilon_calibration": contract.epsilon_calibration,
            "delta": contract.delta,
        },
        "suggestions": [],
        "total": total | totals,
        "strata": {"by": certificate.by, "moved": terms.moved, "parts": parts},
    }
