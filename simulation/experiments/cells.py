"""The cells of an experiment: one combination each, with the settings that run it and its seeds.

A seed is a hash of what it belongs to, so that neither the order of trials, nor the number of
workers, nor other cells change a result. Cells with the same records share the draw of records:
methods are compared on the same splits.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from confide.aggregator.campaigns.planning.settings import belongs, check
from confide.aggregator.quantiles.registry import DEFAULT, MECHANISMS, certified_names
from confide.protocol.certificate import MARGINAL
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.methods.base import AUTOMATIC
from confide.protocol.methods.counts.central import TRUSTED, CentralTerms
from confide.protocol.methods.registry import METHODS as TERMS
from confide.protocol.methods.registry import local_variants
from confide.protocol.version import CODE_VERSION
from confide.simulation.arrays.calibrate import NON_PRIVATE
from confide.simulation.evaluate.calibrated import Calibrated
from confide.simulation.evaluate.repeated import Repeated
from confide.simulation.evaluate.uncertified import Uncertified
from confide.simulation.experiments.experiment import PROCESS, Experiment, PopulationTerms

METHODS = (*local_variants(), CentralTerms.method)
# Settings that the experiment itself has, or that need files or other parties.
_ELSEWHERE = {"failure-probability", "provider-data", "edges-file", "scoring", "sent-features"}
_ELSEWHERE |= {"shuffler", "crowd"}


@dataclass(frozen=True)
class ExperimentCell:
    """One combination; `epsilon` is None without privacy. Its name is a hash of all of it."""

    number: int
    where: str
    method: str
    score: str
    epsilon: float | None
    n: int
    population: str
    terms: PopulationTerms
    setting: Repeated
    name: str
    split_name: str

    def seeds(self, trial: int) -> tuple[int, int]:
        """The seed of the draw of records, and that of the randomisers."""
        return _seed(self.split_name, trial), _seed(self.name, trial)


def cells(experiment: Experiment) -> list[ExperimentCell]:
    """All cells in the order of the file; a method without privacy has no budgets."""
    found: list[ExperimentCell] = []
    contents = {name: terms.content for name, terms in experiment.populations.items()}
    for population, terms in experiment.populations.items():
        for n in experiment.sizes:
            for method in experiment.methods:
                budgets = experiment.budgets if not method.endswith(NON_PRIVATE) else (None,)
                for score in experiment.scores:
                    for epsilon in budgets:
                        place = {"n": n, "method": method, "score": score, "epsilon": epsilon}
                        found.append(
                            _cell(
                                experiment,
                                len(found),
                                place,
                                population=(population, terms, contents[population]),
                            )
                        )
    return found


def _cell(
    experiment: Experiment,
    number: int,
    place: dict[str, Any],
    *,
    population: tuple[str, PopulationTerms, str],
) -> ExperimentCell:
    name, terms, content = population
    try:
        setting = make_setting(experiment, **place)
    except BadInput as error:
        said = ", ".join(f"{key} {value}" for key, value in place.items() if value is not None)
        raise BadInput(f"{said}: {error}") from None
    split = {"seed": experiment.seed, "n": place["n"], "terms": replace(terms, data="")}
    split["content"] = content
    whole = {
        **split,
        **place,
        "version": CODE_VERSION,
        "where": experiment.where,
        "alpha": experiment.alpha,
        "failure": experiment.failure_probability,
        "settings": dict(experiment.settings.get(place["method"], {})),
    }
    return ExperimentCell(
        number,
        experiment.where,
        population=name,
        terms=terms,
        setting=setting,
        name=_digest(whole),
        split_name=_digest(split),
        **place,
    )


def make_setting(
    experiment: Experiment, *, method: str, score: str, epsilon: float | None, n: int
) -> Repeated:
    """The evaluation that a cell is: the one that `confide evaluate` runs for the same options."""
    kind, _, variant = method.partition(":")
    check_choice("method", kind, METHODS)
    if experiment.where != PROCESS and variant == NON_PRIVATE:
        raise BadInput(
            f'method {method} is no campaign, and where is "{experiment.where}"; accepted are '
            f'campaigns, and {NON_PRIVATE} with where = "{PROCESS}"'
        )
    shared: dict[str, Any] = {"score": score, "alpha": experiment.alpha, "n": n, "seed": 0}
    shared |= {"trials": experiment.trials, "epsilon": 1.0 if epsilon is None else epsilon}
    failure = {"failure_probability": experiment.failure_probability}
    settings: dict[str, Any] = {}
    if "mechanism" in TERMS[kind].settings:
        variant, mechanism = TRUSTED, variant or DEFAULT
        check_choice("mechanism of central", mechanism, MECHANISMS)
        given = _given(experiment, method, {*_settings(kind, variant)} - {"mechanism"})
        if mechanism not in certified_names():
            given = _given(experiment, method, {"beta", "bins", "grid", "privacy-delta"})
            return Uncertified(variant=mechanism, **given, **shared)
        settings = {"mechanism": mechanism} | (failure if _fails(kind, given) else {})
    else:
        variant = variant or local_variants()[kind][0]
        private = variant != NON_PRIVATE
        given = _given(experiment, method, {*_settings(kind, variant)} if private else set())
        settings = failure if private and _fails(kind, given) else {}
    return Calibrated(method=kind, variant=variant, settings=settings | given, **shared)


def _fails(kind: str, given: dict[str, Any]) -> bool:
    """Whether the promise is of one calibration, and so has a probability of failure."""
    guarantee = given.get("guarantee", AUTOMATIC)
    usual = TERMS[kind].usual_guarantee
    return (usual if guarantee == AUTOMATIC else guarantee) != MARGINAL


def _settings(kind: str, variant: str) -> list[str]:
    """The settings of a campaign, besides those that the experiment has."""
    asked = {kind, f"{kind}:{variant}"}
    return [key for key, own in belongs().items() if asked & {*own} and key not in _ELSEWHERE]


def _given(experiment: Experiment, method: str, own: set[str]) -> dict[str, Any]:
    """The settings that the file gives for a method; refuse unknown ones and wrong types."""
    given, place = experiment.settings.get(method, {}), f'[settings."{method}"]'
    stray = sorted({*given} - own)
    if stray:
        accepted = ", ".join(sorted(own)) or "none"
        raise BadInput(f"{place} key {stray[0]!r} is unknown; accepted: {accepted}")
    try:
        check(given)
    except BadInput as error:
        raise BadInput(f"{place} {error}") from None
    return {key.replace("-", "_"): value for key, value in given.items()}


def _digest(values: dict[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _seed(name: str, trial: int) -> int:
    """31 bits of a hash, which is as much as a run configuration of Flower takes."""
    found = hashlib.sha256(f"{name}/{trial}".encode()).digest()
    return int.from_bytes(found[:4], "big") >> 1
