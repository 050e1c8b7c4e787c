"""Campaigns of the methods that advice is about, by the evaluations of `confide evaluate`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from confide.protocol.certificate import PAC
from confide.protocol.methods.registry import METHODS
from confide.simulation.advice.advise import Advice, Option
from confide.simulation.data.population import Predictions
from confide.simulation.evaluate.calibrated import Calibrated
from confide.simulation.evaluate.repeated import Repeated, run_trials


def setting(option: Option, advice: Advice, *, trials: int, seed: int | None) -> Repeated:
    """The evaluation of an option at the epsilon of the advice."""
    asked = advice.asked
    shared: dict[str, Any] = {
        "epsilon": advice.epsilon,
        "alpha": asked.alpha,
        "n": asked.records,
        "trials": trials,
        "seed": seed,
        "score": option.score,
    }
    method, _, variant = option.method.partition(":")
    settings: dict[str, Any] = {"failure_probability": asked.failure_probability}
    if "guarantee" in METHODS[method].settings:
        settings["guarantee"] = PAC
    return Calibrated(method=method, variant=variant, settings=settings, **shared)


def simulate(
    advice: Advice,
    population: Predictions,
    *,
    trials: int = 20,
    seed: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Advice:
    """Run the allowed methods on records of this population, and add their mean sizes."""
    options = []
    for option in advice.options:
        if option.refusal is None:
            chosen = setting(option, advice, trials=trials, seed=seed)
            result, _ = run_trials(population, chosen, progress=progress)
            option = replace(option, simulated=result["mean"]["mean_size"])
        options.append(option)
    return replace(advice, options=tuple(options))
