"""The data owner's policy, read from a TOML file that only the owner writes."""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confide.client.ledger.charges import Cost, SpendingLimits
from confide.protocol.architectures.base import canonical
from confide.protocol.architectures.factories import is_factory
from confide.protocol.architectures.registry import read_architecture
from confide.protocol.errors import BadInput, Refused, check_epsilon
from confide.protocol.methods.partition import check_name
from confide.protocol.methods.registry import METHODS
from confide.protocol.plan import Plan
from confide.protocol.record_files.record_columns import TRUTHS
from confide.protocol.wire import wire_pb2 as wire

# Clauses that list keys or digests, and what they list.
KEYS = {
    "aggregators": "an Ed25519 public key",
    "shufflers": "an Ed25519 public key",
    "models": "a SHA-256 digest of a model",
    "vetted_models": "a SHA-256 digest of a model",
}
# Other names of truths and ids: npz files have them in the plural, and csv files number them.
SPELLED = re.compile("(label|target|id|person)s|(true|loss)[0-9]+")

# A factory with its arguments and the digest of its package, and what marks one as vetted.
Code = tuple[str, str, bytes]
VETTED = "vetted"


@dataclass(frozen=True)
class Policy:
    """The limits that the owner sets for campaigns."""

    epsilon_per_record: float
    epsilon_per_campaign: float
    methods: frozenset[str]
    minimum_group: int
    aggregators: frozenset[bytes]
    models: frozenset[bytes]
    vetted_models: frozenset[bytes] = frozenset()
    delta_per_record: float = 0.0
    delta_per_campaign: float = 0.0
    probabilities_may_leave: bool = False
    features_may_leave: bool = False
    exact_counts_may_leave: bool = False
    architectures: frozenset[Code] = frozenset()
    vetted_architectures: frozenset[Code] = frozenset()
    trained_models: bool = False
    columns_may_leave: frozenset[str] = frozenset()
    shufflers: frozenset[bytes] = frozenset()

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon_per_record)
        check_epsilon(self.epsilon_per_campaign)
        for name in ("delta_per_record", "delta_per_campaign"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(
                    f"{name} is {getattr(self, name)!r}; it must be 0 or more and below 1"
                )
        unknown = self.methods - set(METHODS)
        if unknown:
            raise BadInput(
                f"methods holds {', '.join(sorted(unknown))}; accepted: {', '.join(METHODS)}"
            )
        if self.minimum_group < 1:
            raise BadInput(f"minimum_group is {self.minimum_group}; at least 1")
        for name, wanted in KEYS.items():
            if any(len(value) != 32 for value in getattr(self, name)):
                raise BadInput(
                    f"{name} holds a value that is not {wanted}: 64 hexadecimal digits are accepted"
                )
        named = {name for name in self.columns_may_leave if SPELLED.fullmatch(name)}
        private = named | (self.columns_may_leave & {*TRUTHS, "id", "person"})
        if private:
            raise BadInput(
                f"columns_may_leave holds {', '.join(sorted(private))}; accepted are columns that "
                "say neither what was observed nor whose record it is"
            )
        if not self.vetted_models <= self.models:
            raise BadInput(
                "vetted_models holds a digest that is not among models; list it there too"
            )
        if not self.vetted_architectures <= self.architectures:
            raise BadInput("vetted_architectures holds one that is not among architectures")

    def refusals(self, plan: Plan) -> list[int]:
        """Return the wire codes of all clauses that this plan breaks; empty if it is allowed."""
        broken = {
            wire.Code.METHOD_NOT_ALLOWED: plan.method not in self.methods,
            wire.Code.EPSILON_PER_CAMPAIGN: plan.epsilon > self.epsilon_per_campaign,
            wire.Code.EPSILON_PER_RECORD: plan.epsilon > self.epsilon_per_record,
            wire.Code.DELTA_PER_CAMPAIGN: plan.privacy_delta
            > min(self.delta_per_campaign, self.delta_per_record),
            wire.Code.EXACT_COUNTS_MAY_NOT_LEAVE: plan.terms.shows_exact_counts
            and not self.exact_counts_may_leave,
            wire.Code.PROBABILITIES_MAY_NOT_LEAVE: plan.terms.shows_probabilities
            and not self.probabilities_may_leave,
            wire.Code.FEATURES_MAY_NOT_LEAVE: plan.terms.sent_features > 0
            and not self.features_may_leave,
            wire.Code.COLUMN_MAY_NOT_LEAVE: plan.terms.group_column != ""
            and plan.terms.group_column not in self.columns_may_leave,
            # Without a list any will do: what the ledger charges holds without a shuffler.
            wire.Code.SHUFFLER_NOT_ALLOWED: plan.shuffling is not None
            and plan.shuffling.key not in (self.shufflers or {plan.shuffling.key}),
            wire.Code.CODE_NOT_ALLOWED: plan.terms.code is not None
            and plan.terms.code not in self.architectures,
            wire.Code.MODEL_NOT_ALLOWED: plan.terms.uses_model
            and plan.model not in self.models
            and not (self.trained_models and plan.training and not plan.terms.shows_probabilities),
        }
        return [code for code, is_broken in broken.items() if is_broken]

    def vets(self, plan: Plan) -> bool:
        """Return whether what the plan runs on records here may see many of them at once."""
        if plan.terms.uses_model:
            return plan.model in self.vetted_models
        return plan.terms.code in self.vetted_architectures

    @property
    def limits(self) -> SpendingLimits:
        """The limits that the ledger enforces for every record."""
        return SpendingLimits(
            record=Cost(self.epsilon_per_record, self.delta_per_record),
            campaign=Cost(self.epsilon_per_campaign, self.delta_per_campaign),
            fewest=self.minimum_group,
        )

    def check(self, plan: Plan) -> None:
        """Refuse a plan outside the policy, with the code of the first clause that it breaks."""
        for code in self.refusals(plan):
            raise Refused(code)


def read_policy(path: Path) -> Policy:
    """Read a policy file, which must hold every clause and nothing else.

    Only `shufflers` may be left out.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; `confide-client init` writes one") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path} cannot be read as TOML: {error}") from None
    try:
        return _policy(values)
    except (BadInput, OverflowError) as error:
        raise BadInput(f"{path}: {error}") from None


_KINDS: dict[str, tuple[type, ...]] = {
    "epsilon_per_record": (int, float),
    "epsilon_per_campaign": (int, float),
    "delta_per_record": (int, float),
    "delta_per_campaign": (int, float),
    "methods": (list,),
    "probabilities_may_leave": (bool,),
    "features_may_leave": (bool,),
    "columns_may_leave": (list,),
    "exact_counts_may_leave": (bool,),
    "minimum_group": (int,),
    "aggregators": (list,),
    "models": (list,),
    "vetted_models": (list,),
    "architectures": (list,),
    "trained_models": (bool,),
    "shufflers": (list,),
}
# Policies from before this clause mean the same without it.
_MAY_MISS: dict[str, Any] = {"shufflers": []}


def _policy(values: dict[str, Any]) -> Policy:
    values = _MAY_MISS | values
    missing, unknown = sorted(set(_KINDS) - set(values)), sorted(set(values) - set(_KINDS))
    if missing or unknown:
        raise BadInput(
            f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}"
        )
    for name, kinds in _KINDS.items():
        wrong = isinstance(values[name], bool) and bool not in kinds
        if wrong or not isinstance(values[name], kinds):
            raise BadInput(
                f"{name} is {values[name]!r}; accepted is "
                f"{' or '.join(kind.__name__ for kind in kinds)}"
            )
    listed = [_architecture(value) for value in values["architectures"]]
    return Policy(
        epsilon_per_record=float(values["epsilon_per_record"]),
        epsilon_per_campaign=float(values["epsilon_per_campaign"]),
        methods=frozenset(map(str, values["methods"])),
        probabilities_may_leave=values["probabilities_may_leave"],
        features_may_leave=values["features_may_leave"],
        minimum_group=values["minimum_group"],
        aggregators=frozenset(_unhex("aggregators", value) for value in values["aggregators"]),
        models=frozenset(_unhex("models", value) for value in values["models"]),
        vetted_models=frozenset(
            _unhex("vetted_models", value) for value in values["vetted_models"]
        ),
        delta_per_record=float(values["delta_per_record"]),
        delta_per_campaign=float(values["delta_per_campaign"]),
        exact_counts_may_leave=values["exact_counts_may_leave"],
        architectures=frozenset(code for code, _ in listed),
        vetted_architectures=frozenset(code for code, vetted in listed if vetted),
        trained_models=values["trained_models"],
        columns_may_leave=frozenset(map(_name, values["columns_may_leave"])),
        shufflers=frozenset(_unhex("shufflers", value) for value in values["shufflers"]),
    )


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise BadInput(f"columns_may_leave holds {value!r}; accepted are names of columns")
    check_name("columns_may_leave", value)
    return value


def _architecture(value: Any) -> tuple[Code, bool]:
    """Read an entry of the list of architectures, and whether it is vetted.

    It is a factory with its arguments and the digest of its package.
    """
    words = value.removesuffix(f" {VETTED}") if isinstance(value, str) else ""
    text, _, digest = words.rpartition(" ")
    name, arguments = read_architecture(text) if text.strip() else ("", {})
    if not is_factory(name) or re.fullmatch("[0-9a-fA-F]{64}", digest) is None:
        raise BadInput(
            f"architectures holds {value!r}; accepted are strings of a module:factory, its "
            "arguments and 64 hexadecimal digits, as `confide-client allow architecture` writes "
            "them"
        )
    return (name, canonical(arguments), bytes.fromhex(digest)), words != value


def _unhex(name: str, value: Any) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise BadInput(
            f"{name} holds {value!r}; accepted are strings of 64 hexadecimal digits"
        ) from None


def list_in(text: str, name: str, value: str) -> str:
    """Add a value to a list in the text of a policy, and leave everything else as it is.

    Comments are kept too.
    """
    before = tomllib.loads(text)
    listed = before[name]
    if value in listed:
        return text
    found = re.search(rf"^{name}\s*=\s*\[(.*?)\]", text, flags=re.MULTILINE | re.DOTALL)
    # JSON writes text as TOML reads it.
    entries = ", ".join(json.dumps(entry) for entry in [*listed, value])
    changed = (
        ""
        if found is None or "#" in found[1]
        else f"{text[: found.start()]}{name} = [{entries}]{text[found.end() :]}"
    )
    try:
        after = tomllib.loads(changed)
    except tomllib.TOMLDecodeError:
        after = {}
    if after != before | {name: [*listed, value]}:
        raise BadInput(f"{name} is no plain list in the policy; add {value!r} to it by hand")
    _policy(after)
    return changed
