"""The settings of a simulation that follow from its records and its model."""

from pathlib import Path
from typing import Any

import numpy as np

from confide.aggregator.campaigns.planning.provider_files import with_provider_files
from confide.aggregator.campaigns.planning.run_plans import trains
from confide.protocol.errors import BadInput
from confide.protocol.methods.labels.in_clear import AGGREGATOR
from confide.protocol.models.model_file import Model
from confide.protocol.scores.registry import find_score, scores_of
from confide.protocol.simulated.embedded import embedded_model
from confide.protocol.simulated.records import SimulatedData, dealt, dealt_records, simulated_data
from confide.protocol.simulated.settings import EMBEDDED_MODEL, RESULTS_IN_FILE


def simulated_settings(
    config: dict[str, Any], *, owners: int
) -> tuple[dict[str, Any], bytes | None]:
    """Return the whole settings of a simulation with so many owners, and the file of its model.

    A file of one's own says how many labels and features there are, and how many records; its
    model is the file `model-file`, or unknown if records have probabilities.
    """
    data = simulated_data(config)
    _check_task(str(config["score"]), data)
    config = config | {"records": dealt_records(config)}
    dealt(config, owners=owners)
    for values in data.public.values():
        # All groups of the file, unless some are named.
        config = config | {"groups": config["groups"] or np.unique(values).tolist()}
    if not config["data"]:
        if config["scoring"] == AGGREGATOR:
            return with_provider_files(config, model=embedded_model())
        return with_provider_files({**config, "model": config["model"] or EMBEDDED_MODEL.hex()})
    model = Model.read(Path(str(config["model-file"]))) if config["model-file"] else None
    config = config | {"labels": _labels(config, data, model)}
    if data.feature_count:
        config["features"] = data.feature_count
    if model is None:
        config["model"] = RESULTS_IN_FILE.hex()
    _check(config, data, model)
    return with_provider_files(config)


def _check_task(score: str, data: SimulatedData) -> None:
    """Refuse a score of labels for records with targets, and the other way round."""
    asked = find_score(score)
    if asked.task == data.task:
        return
    raise BadInput(
        f"score is {asked.text!r}, and {data.name} has {data.task.truths}; accepted is "
        f"{scores_of(data.task)}"
    )


def _labels(config: dict[str, Any], data: SimulatedData, model: Model | None) -> int:
    """Return the number of labels, and refuse labels that the model's outputs do not have."""
    task = find_score(str(config["score"])).task
    if not task.of_labels:
        return 0
    outputs = None
    if model is not None:
        outputs = model.open(str(config["model-file"])).outputs
    elif data.results is not None:
        outputs = data.results.shape[1]
    if task.of_risk:
        return int(data.truth.shape[1] if outputs is None else outputs)
    least, most = int(data.truth.min()), int(data.truth.max())
    labels = most + 1 if outputs is None else outputs
    if least < 0 or most >= labels:
        raise BadInput(
            f"{data.name} has labels from {least} to {most}, and the model {labels} outputs; "
            f"accepted are labels from 0 to {labels - 1}"
        )
    return max(labels, 2)


def _check(config: dict[str, Any], data: SimulatedData, model: Model | None) -> None:
    """Refuse campaigns for which these records are unsuitable or too few."""
    names = str(config["campaigns"]).split()
    chain = bool(names) and trains(names[0]) and float(config["train-share"]) > 0
    scored = [name for name in names if not trains(name)]
    if model is not None and data.features is None:
        raise BadInput(
            f"a model is given, and {data.name} holds no features that it could run on; accepted "
            "is one of them"
        )
    asked = find_score(str(config["score"]))
    if scored and data.results_for(asked) is None and model is None and not chain:
        wanted = " and ".join(asked.columns) or "probabilities"
        raise BadInput(
            f"{data.name} holds no {wanted}, and {scored[0]} needs a model's results; accepted is "
            f"also a model (.onnx) for its features, {wanted} in the file, or a chain that trains "
            "a model first"
        )
    if any(map(trains, names)) and (data.features is None or data.features.ndim != 2):
        raise BadInput(
            f"{data.name} holds no features as (n, d) numbers, which trainings need; accepted is a "
            "file with features"
        )
    least = int(config["minimum-reports"])
    if int(config["records"]) < least:
        raise BadInput(
            f"{config['records']} of {len(data)} records are dealt, and a certificate needs at "
            f"least {least} reports; accepted are more records, a smaller test-share or a smaller "
            "minimum-reports"
        )
