"""The cells of an experiment: one combination each, with the settings that run it and its seeds.

A seed is a hash of what it belongs to, so that neither the order of trials, nor the number of
workers, nor other cells change a result. Cells with the same records share the draw of records:
methods are compared on the same splits.
"""

import hashlib
import json
from dataclasses import dataclass, fields, replace
from typing import Any

from confide.aggregator.quantiles.registry import DEFAULT, MECHANISMS
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.methods.registry import local_variants
from confide.protocol.version import CODE_VERSION
from confide.simulation.evaluate.central import Central
from confide.simulation.evaluate.local import Local
from confide.simulation.evaluate.trials import Repeated
from confide.simulation.experiments.experiment import FLOWER, PROCESS, Experiment, PopulationTerms

NON_PRIVATE = "non-private"
METHODS = (*local_variants(), "central")
# Fields of settings that the experiment itself has.
_SHARED = {"method", "variant", "score", "epsilon", "alpha", "n", "trials", "seed"}
_SHARED |= {"failure_probability"}


@dataclass(frozen=True)
class Cell:
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


def cells(experiment: Experiment) -> list[Cell]:
    """All cells in the order of the file; a method without privacy has no budgets."""
    found: list[Cell] = []
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
) -> Cell:
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
    return Cell(
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
    if experiment.where == FLOWER and variant == NON_PRIVATE:
        raise BadInput(
            f'method {method} is no campaign, and where is "{FLOWER}"; accepted are campaigns, and '
            f'{NON_PRIVATE} with where = "{PROCESS}"'
        )
    made: Any = Central if kind == "central" else Local
    given = {key.replace("-", "_"): v for key, v in experiment.settings.get(method, {}).items()}
    own = {one.name for one in fields(made)} - _SHARED
    stray = sorted({*given} - own)
    if stray:
        accepted = ", ".join(sorted(name.replace("_", "-") for name in own))
        raise BadInput(
            f'[settings."{method}"] key {stray[0]!r} is unknown; accepted: {accepted or "none"}'
        )
    shared: dict[str, Any] = {"score": score, "alpha": experiment.alpha, "n": n, "seed": 0}
    shared |= {"trials": experiment.trials, "epsilon": 1.0 if epsilon is None else epsilon}
    if kind in local_variants():
        names = {"method": kind, "failure_probability": experiment.failure_probability}
    else:
        names = {"method": kind}
    default = DEFAULT if kind == "central" else "certified"
    if kind == "central":
        check_choice("mechanism of central", variant or default, MECHANISMS)
    try:
        found: Repeated = made(variant=variant or default, **names, **shared, **given)
    except TypeError:
        said = ", ".join(f"{key} = {value!r}" for key, value in given.items())
        raise BadInput(
            f'[settings."{method}"] holds {said}; accepted are values of the kinds that '
            "`confide evaluate` takes"
        ) from None
    return found


def _digest(values: dict[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _seed(name: str, trial: int) -> int:
    """31 bits of a hash, which is as much as a run configuration of Flower takes."""
    found = hashlib.sha256(f"{name}/{trial}".encode()).digest()
    return int.from_bytes(found[:4], "big") >> 1
