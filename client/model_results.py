"""The results of an owner's model for its records, as plans use them."""

import math
from dataclasses import replace
from pathlib import Path

from confide.client.records.records import Records
from confide.client.records.score_cache import head_inputs, probabilities
from confide.protocol.errors import Refused
from confide.protocol.exact.lattice import MOST_BATCH
from confide.protocol.models.model_file import Model
from confide.protocol.plan import Plan
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import Array

Kind = tuple[str, int, bytes]


class ModelResults:
    """Runs the model that a plan names on all records, and keeps the last results.

    A plan either asks for scores, which records may have come with, or trains a head on the model's
    outputs. They are kept in the folder `cache` too.
    """

    def __init__(self, records: Records, model: Model | None, *, cache: Path | None) -> None:
        self._records, self._model, self._cache = records, model, cache
        self._last: tuple[Kind, bool, Array] | None = None

    def use(self, model: Model) -> None:
        """Use this model from now on."""
        self._model, self._last = model, None

    def lacks_model(self, plan: Plan) -> bool:
        """Return whether the plan needs a model file here, and there is none."""
        return self._runs_model(plan) and self._model is None

    def _runs_model(self, plan: Plan) -> bool:
        """Return whether the model runs here; probabilities may have come with the records.

        Those are not of a model that was trained later.
        """
        if plan.terms.features is None and self._records.probs is not None and not plan.training:
            return False
        return plan.terms.uses_model

    def check(self, plan: Plan) -> None:
        """Refuse records that do not fit the plan, or a model that is not the plan's.

        Probabilities must be of the plan's model, over as many labels. For training, records must
        have features: as many as the network has inputs, unless a model makes the inputs of them.
        Where the aggregator scores, they must have as many features as the plan asks for.
        """
        records, terms = self._records, plan.terms
        if terms.sent_features:
            fits = records.features is not None and (
                math.prod(records.features.shape[1:]) == terms.sent_features
            )
        elif self._runs_model(plan):
            fits = self._model is not None and self._model.digest == plan.model
        elif terms.features is None:
            fits = records.model in (None, plan.model) and (
                records.probs is None or records.probs.shape[1] == plan.labels
            )
        else:
            fits = records.features is not None and records.features.shape == (
                len(records),
                terms.features,
            )
        if not fits or (terms.features is not None and records.features is None):
            raise Refused(wire.Code.MODEL_NOT_ALLOWED)
        if terms.features is not None and len(records) > MOST_BATCH:
            raise Refused(wire.Code.TOO_LARGE)

    def make(self, plan: Plan, *, vetted: bool) -> None:
        """Run the model for a plan that uses it; it never fails on what the records hold."""
        kind = _kind(plan)
        if self._last is not None and self._last[:2] == (kind, vetted):
            return
        records = replace(self._records, probs=None) if plan.training else self._records
        width, given = plan.terms.features, (records, self._model)
        found = (
            probabilities(*given, labels=plan.labels, vetted=vetted, cache=self._cache)
            if width is None
            else head_inputs(*given, width=width, vetted=vetted, cache=self._cache)
        )
        self._last = kind, vetted, found

    def made(self, plan: Plan) -> Array | None:
        """Return the results made last if they are of the kind that the plan uses."""
        return self._last[2] if self._last is not None and self._last[0] == _kind(plan) else None


def _kind(plan: Plan) -> Kind:
    """Return what the results are, how many there are of a record, and of which model."""
    width = plan.terms.features
    what, count = ("probabilities", plan.labels) if width is None else ("inputs", width)
    return what, count, plan.model
