"""The results of an owner's model for its records, as plans use them."""

import logging
import math
from dataclasses import replace
from pathlib import Path

from confide.client.records.records import Records
from confide.client.records.score_cache import head_inputs, predictions, probabilities
from confide.protocol.errors import Refused
from confide.protocol.exact.lattice import MOST_BATCH
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.models.model_file import Model
from confide.protocol.models.results import TASK_RESULTS
from confide.protocol.plan import Plan
from confide.protocol.scores.registry import find_score
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.columns import Array

log = logging.getLogger(__name__)

# The most numbers of all records that are held at once: 4 GB in single precision.
MOST_NUMBERS = 1 << 30
# What the results are, how many there are of a record, of which model, and whether it ran here.
Kind = tuple[str, int, bytes, bool]


class ModelResults:
    """Runs the model that a plan names on all records, and keeps the last results.

    A plan either asks for scores, which records may have come with, or trains a head on the model's
    outputs. They are kept in the folder `cache` too.
    """

    def __init__(self, records: Records, model: Model | None, *, cache: Path | None) -> None:
        self._records, self._model, self._cache = records, model, cache
        self._last: tuple[Kind, bool, Array] | None = None
        self._origin: tuple[bytes, Plan] | None = None

    def use(self, model: Model) -> None:
        """Use this model from now on."""
        self._model, self._last = model, None

    def lacks_model(self, plan: Plan) -> bool:
        """Return whether the plan needs a model file here, and there is none."""
        return self._runs_model(plan) and self._model is None

    def _runs_model(self, plan: Plan) -> bool:
        """Return whether the plan's model has to run here.

        It need not if results came with the records, unless the model was trained by a campaign:
        those results are of another model.
        """
        if plan.terms.features is None and self._has_results(plan) and not plan.training:
            return False
        return plan.terms.uses_model

    def _has_results(self, plan: Plan) -> bool:
        """Return whether records came with what the plan's score reads."""
        own = self._records
        return own.results is not None and set(find_score(plan.score).columns) <= set(own.columns)

    def misfit(self, plan: Plan) -> str | None:
        """Say, to the owner alone, what records lack that the plan's score reads; None: nothing."""
        own, score = self._records, find_score(plan.score)
        if own.task != score.task:
            return (
                f"the records are for {own.task} and the plan's score {score.text!r} for "
                f"{score.task}; accepted is a file with what was observed as the plan has it"
            )
        if self._runs_model(plan) and own.features is None:
            wanted = " and ".join(f"`{name}`" for name in score.columns) or "probabilities"
            return (
                f"the plan's score {score.text!r} reads {wanted}; accepted is a file with these, "
                "or with features on which the plan's model can run"
            )
        column = plan.terms.group_column
        if column and column not in own.public:
            return (
                f"the plan groups records by {column!r}; accepted is a file with that column, "
                "which the policy lists among `columns_may_leave`"
            )
        return None

    def check(self, plan: Plan) -> None:
        """Refuse records that do not fit the plan, or a model that is not the plan's.

        Truths must be labels or numbers, as the plan's score has it. Results must be of the plan's
        model, and probabilities over as many labels. For training, records must have features: as
        many as the network has inputs, unless a model makes the inputs of them. Where the
        aggregator scores, they must have as many features as the plan asks for. Where the plan
        names groups, they must have their column. Records of which a plan would make more numbers
        than fit into memory are too large.
        """
        records, terms = self._records, plan.terms
        if records.task != plan.task:
            fits = False
        elif terms.sent_features:
            fits = records.features is not None and (
                math.prod(records.features.shape[1:]) == terms.sent_features
            )
        elif self._runs_model(plan):
            fits = self._model is not None and self._model.digest == plan.model
        elif terms.features is None:
            fits = records.model in (None, plan.model) and (
                records.results is None
                or plan.labels == 0
                or records.results.shape[1] == plan.labels
            )
        else:
            fits = records.features is not None and records.features.shape == (
                len(records),
                terms.features,
            )
        fits &= not terms.group_column or terms.group_column in records.public
        if not fits or (terms.features is not None and records.features is None):
            raise Refused(wire.Code.MODEL_NOT_ALLOWED)
        if terms.features is not None and len(records) > MOST_BATCH:
            raise Refused(wire.Code.TOO_LARGE)
        if len(records) * self._numbers(plan) > MOST_NUMBERS:
            raise Refused(wire.Code.TOO_LARGE)

    @staticmethod
    def _numbers(plan: Plan) -> int:
        """Return how many numbers of a record a plan makes: results of a model, labels, flags."""
        terms = plan.terms
        if terms.features is None:
            return plan.labels + 1
        return terms.features if terms.uses_model else 0

    def come_of(self, training: Plan) -> bool:
        """Return whether the model can be the result of a training: its network, with any weights.

        Whether the weights are those that were trained, only the aggregator knows. The model of a
        head contains the backbone, which was kept when the head was trained. A network of another
        package is not recognised, because its exports differ from machine to machine.
        """
        terms, model = TrainingTerms.of(training.terms), self._model
        if model is None or terms.code is not None:
            return False
        if self._origin == (model.digest, training):
            return True
        backbone = None
        if terms.uses_model:
            kept = None if self._cache is None else Model.kept(self._cache, training.model)
            if kept is None:
                log.error(
                    "the model that a head was trained on is not kept here any more; accepted is a "
                    "model of the list `models` (`confide-client allow model`)"
                )
                return False
            backbone = kept.data
        # Reads and writes ONNX, which only owners of trained models need.
        from confide.protocol.architectures.origin import is_export

        network, centre = terms.network(), terms.centre
        if not is_export(model.data, network, centre=centre, backbone=backbone, span=terms.span):
            return False
        self._origin = model.digest, training
        return True

    def make(self, plan: Plan, *, vetted: bool) -> None:
        """Run the model for a plan that uses it; it never fails on what the records hold."""
        kind = self._kind(plan)
        if self._last is not None and self._last[:2] == (kind, vetted):
            return
        records = self._records
        if plan.training:
            records = replace(records, results=None, columns=())
        width, given = plan.terms.features, (records, self._model)
        if width is not None and self._model is not None and self._cache is not None:
            self._model.keep(self._cache)
        columns = find_score(plan.score).columns
        if width is not None:
            found = head_inputs(*given, width=width, vetted=vetted, cache=self._cache)
        elif columns:
            found = predictions(*given, columns=columns, vetted=vetted, cache=self._cache)
        else:
            read = TASK_RESULTS[plan.task]
            found = probabilities(
                *given, labels=plan.labels, kind=read, vetted=vetted, cache=self._cache
            )
        self._last = kind, vetted, found

    def made(self, plan: Plan) -> Array | None:
        """Return the results made last if they are of the kind that the plan uses."""
        last = self._last
        return last[2] if last is not None and last[0] == self._kind(plan) else None

    def _kind(self, plan: Plan) -> Kind:
        width = plan.terms.features
        what, count = "inputs", width
        if count is None:
            score = find_score(plan.score)
            what, count = " ".join(score.columns) or "probabilities", score.width(plan.labels)
        return what, count, plan.model, self._runs_model(plan)
