"""The model provider's own files that a plan is made from: its model, and records that it holds."""

from pathlib import Path
from typing import Any

import numpy as np

from confide.aggregator.procedures.ladder import even_in_size
from confide.aggregator.quantiles.base import Mechanism
from confide.protocol.errors import BadInput
from confide.protocol.exact.grids import EVEN, GIVEN, MOST_EDGES
from confide.protocol.methods.base import AUTOMATIC
from confide.protocol.methods.labels.in_clear import AGGREGATOR
from confide.protocol.methods.registry import METHODS
from confide.protocol.models.model_file import Model
from confide.protocol.models.scorer import score as run_model
from confide.protocol.record_files.record_columns import read_columns
from confide.protocol.scores.probabilities import check_probabilities
from confide.protocol.scores.registry import find_label_score
from confide.protocol.wire.columns import Array

ACCEPTED = "accepted are .npz, .csv and .parquet with probabilities `p0`, `p1`, ... or features"


def with_provider_files(
    config: dict[str, Any], *, model: bytes | None = None
) -> tuple[dict[str, Any], bytes | None]:
    """Return the settings with what follows from the files they name, and the file of the model.

    `model-file` gives the digest of the model and, if the aggregator scores, how many numbers of a
    record owners send. `provider-data` gives the ladder of a certified labels campaign: thresholds
    even in set size on records of the provider's own, which therefore are public; for counts it
    gives the edges of the grid `even`, and `edges-file` those of the grid `given`. `model` takes
    the place of `model-file`.
    """
    config = dict(config)
    found = _read_model(config, model)
    data = str(config.get("provider-data", ""))
    names = str(config.get("campaigns") or config.get("campaign") or "").split()
    counts = bool(names) and all("grid" in _settings(name) for name in names)
    if data and counts and config.get("grid") != EVEN:
        raise BadInput(
            f"provider-data is given, and grid is {config.get('grid')}; accepted is grid {EVEN}"
        )
    if data:
        probs = _probabilities(Path(data), found, labels=int(config["labels"]))
        scores = find_label_score(str(config["score"])).all_scores(probs, u=_spread(len(probs)))
        config["ladder"] = even_in_size(scores).tolist()
        if config.get("grid") == EVEN:
            bins = config["bins"] if config["bins"] != AUTOMATIC else Mechanism.usual_bins
            edges = even_in_size(scores, rungs=min(int(bins), MOST_EDGES) - 1)
            config["edges"] = edges[edges > 0].tolist()
    file = str(config.get("edges-file", ""))
    if (config.get("grid") == GIVEN) != bool(file):
        raise BadInput(
            f"grid is {config.get('grid')} and edges-file {file!r}; accepted is a file with grid "
            f"{GIVEN}, and none with any other"
        )
    if file:
        config["edges"] = _numbers(Path(file))
    return config, None if found is None else found.data


def _settings(campaign: str) -> dict[str, tuple[str, ...]]:
    terms = METHODS.get(campaign.partition(":")[0])
    return {} if terms is None else terms.settings


def _read_model(config: dict[str, Any], given: bytes | None) -> Model | None:
    path, said = str(config.get("model-file", "")), str(config.get("model", ""))
    scored_here = config.get("scoring") == AGGREGATOR
    if not path and given is None:
        if scored_here:
            raise BadInput(
                "scoring is 'aggregator', and model-file is not given; accepted is the ONNX file "
                "that scores"
            )
        return None
    model = Model.read(Path(path)) if given is None else Model.of(given)
    if said and said.lower() != model.digest.hex():
        raise BadInput(
            f"model is {said} and model-file {path} has digest {model.digest.hex()}; accepted is "
            "the same in both, or one of them"
        )
    config["model"] = model.digest.hex()
    if scored_here and not config.get("sent-features"):
        size = model.open(path or "model").record_size
        if size is None:
            raise BadInput(
                f"{path} does not declare how many numbers a record has; accepted is sent-features"
            )
        config["sent-features"] = size
    return model


def _probabilities(path: Path, model: Model | None, *, labels: int) -> Array:
    """Return the probabilities in a file, or those of the model for the features in it."""
    arrays = read_columns(path, accepted=ACCEPTED).arrays
    probs, features = arrays.get("probs"), arrays.get("features")
    if probs is None and features is not None and model is not None:
        probs = run_model(model, features, labels=labels, vetted=True)
    if probs is None or probs.ndim != 2 or probs.shape[1] != labels or not len(probs):
        raise BadInput(
            f"{path} holds {sorted(arrays)}; {ACCEPTED}: those of {labels} labels, or features "
            "with model-file"
        )
    # As owners send them: thresholds between two of these numbers would be one threshold.
    return check_probabilities(probs).astype(np.float32)


def _numbers(path: Path) -> list[float]:
    """Return the numbers in a file of text, apart by spaces, commas or lines."""
    try:
        return [float(word) for word in path.read_text().replace(",", " ").split()]
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{path} cannot be read as numbers: {error}; accepted is text with thresholds that "
            "ascend to 1"
        ) from None


def _spread(n: int) -> Array:
    """Numbers spread over [0, 1) for randomised scores; the same for the same file."""
    return np.random.default_rng(0).random(n)
