from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[Code]
    MALFORMED: _ClassVar[Code]
    WRONG_VERSION: _ClassVar[Code]
    UNSIGNED: _ClassVar[Code]
    UNKNOWN_KEY: _ClassVar[Code]
    BAD_SIGNATURE: _ClassVar[Code]
    NOT_YET_VALID: _ClassVar[Code]
    EXPIRED: _ClassVar[Code]
    WRONG_PLAN: _ClassVar[Code]
    METHOD_NOT_ALLOWED: _ClassVar[Code]
    EPSILON_PER_RECORD: _ClassVar[Code]
    EPSILON_PER_CAMPAIGN: _ClassVar[Code]
    FEATURES_MAY_NOT_LEAVE: _ClassVar[Code]
    MODEL_NOT_ALLOWED: _ClassVar[Code]
    GROUP_TOO_SMALL: _ClassVar[Code]
    ALREADY_SPENT: _ClassVar[Code]
    WRONG_ROUND: _ClassVar[Code]
    OUT_OF_ALPHABET: _ClassVar[Code]
    DUPLICATE: _ClassVar[Code]
    LATE: _ClassVar[Code]
    INTERNAL: _ClassVar[Code]
    DELTA_PER_CAMPAIGN: _ClassVar[Code]
    EXACT_COUNTS_MAY_NOT_LEAVE: _ClassVar[Code]
    UNAUTHENTICATED: _ClassVar[Code]
    UNKNOWN_CAMPAIGN: _ClassVar[Code]
    CLOSED: _ClassVar[Code]
    SURPLUS: _ClassVar[Code]
    TOO_LARGE: _ClassVar[Code]
    RATE_LIMITED: _ClassVar[Code]
    TIMED_OUT: _ClassVar[Code]
    UNAVAILABLE: _ClassVar[Code]
    CODE_NOT_ALLOWED: _ClassVar[Code]
    PROBABILITIES_MAY_NOT_LEAVE: _ClassVar[Code]
    SHUFFLER_ONLY: _ClassVar[Code]
    COLUMN_MAY_NOT_LEAVE: _ClassVar[Code]
    SHUFFLER_NOT_ALLOWED: _ClassVar[Code]
OK: Code
MALFORMED: Code
WRONG_VERSION: Code
UNSIGNED: Code
UNKNOWN_KEY: Code
BAD_SIGNATURE: Code
NOT_YET_VALID: Code
EXPIRED: Code
WRONG_PLAN: Code
METHOD_NOT_ALLOWED: Code
EPSILON_PER_RECORD: Code
EPSILON_PER_CAMPAIGN: Code
FEATURES_MAY_NOT_LEAVE: Code
MODEL_NOT_ALLOWED: Code
GROUP_TOO_SMALL: Code
ALREADY_SPENT: Code
WRONG_ROUND: Code
OUT_OF_ALPHABET: Code
DUPLICATE: Code
LATE: Code
INTERNAL: Code
DELTA_PER_CAMPAIGN: Code
EXACT_COUNTS_MAY_NOT_LEAVE: Code
UNAUTHENTICATED: Code
UNKNOWN_CAMPAIGN: Code
CLOSED: Code
SURPLUS: Code
TOO_LARGE: Code
RATE_LIMITED: Code
TIMED_OUT: Code
UNAVAILABLE: Code
CODE_NOT_ALLOWED: Code
PROBABILITIES_MAY_NOT_LEAVE: Code
SHUFFLER_ONLY: Code
COLUMN_MAY_NOT_LEAVE: Code
SHUFFLER_NOT_ALLOWED: Code

class Plan(_message.Message):
    __slots__ = ("version", "campaign", "method", "terms", "score", "labels", "alpha", "expected_records", "minimum_reports", "minimum_owners", "model", "issued", "expires", "training", "share", "chain", "shuffling")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CAMPAIGN_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_REPORTS_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_OWNERS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    SHUFFLING_FIELD_NUMBER: _ClassVar[int]
    version: int
    campaign: str
    method: str
    terms: bytes
    score: str
    labels: int
    alpha: float
    expected_records: int
    minimum_reports: int
    minimum_owners: int
    model: bytes
    issued: int
    expires: int
    training: bytes
    share: _containers.RepeatedScalarFieldContainer[float]
    chain: _containers.RepeatedCompositeFieldContainer[ChainCost]
    shuffling: Shuffling
    def __init__(self, version: _Optional[int] = ..., campaign: _Optional[str] = ..., method: _Optional[str] = ..., terms: _Optional[bytes] = ..., score: _Optional[str] = ..., labels: _Optional[int] = ..., alpha: _Optional[float] = ..., expected_records: _Optional[int] = ..., minimum_reports: _Optional[int] = ..., minimum_owners: _Optional[int] = ..., model: _Optional[bytes] = ..., issued: _Optional[int] = ..., expires: _Optional[int] = ..., training: _Optional[bytes] = ..., share: _Optional[_Iterable[float]] = ..., chain: _Optional[_Iterable[_Union[ChainCost, _Mapping]]] = ..., shuffling: _Optional[_Union[Shuffling, _Mapping]] = ...) -> None: ...

class Shuffling(_message.Message):
    __slots__ = ("key", "authority", "recipient", "crowd")
    KEY_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    RECIPIENT_FIELD_NUMBER: _ClassVar[int]
    CROWD_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    authority: bytes
    recipient: bytes
    crowd: int
    def __init__(self, key: _Optional[bytes] = ..., authority: _Optional[bytes] = ..., recipient: _Optional[bytes] = ..., crowd: _Optional[int] = ...) -> None: ...

class ChainCost(_message.Message):
    __slots__ = ("campaign", "epsilon", "delta")
    CAMPAIGN_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    campaign: str
    epsilon: float
    delta: float
    def __init__(self, campaign: _Optional[str] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ...) -> None: ...

class BitTerms(_message.Message):
    __slots__ = ("variant", "epsilon", "delta", "max_corrupt", "joint", "part_floor", "planned_mixture", "smallest_owner", "group_column", "groups", "level_alphas", "level_deltas", "equal_owners")
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    MAX_CORRUPT_FIELD_NUMBER: _ClassVar[int]
    JOINT_FIELD_NUMBER: _ClassVar[int]
    PART_FLOOR_FIELD_NUMBER: _ClassVar[int]
    PLANNED_MIXTURE_FIELD_NUMBER: _ClassVar[int]
    SMALLEST_OWNER_FIELD_NUMBER: _ClassVar[int]
    GROUP_COLUMN_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_ALPHAS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_DELTAS_FIELD_NUMBER: _ClassVar[int]
    EQUAL_OWNERS_FIELD_NUMBER: _ClassVar[int]
    variant: str
    epsilon: float
    delta: float
    max_corrupt: int
    joint: bool
    part_floor: int
    planned_mixture: bool
    smallest_owner: int
    group_column: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    level_alphas: _containers.RepeatedScalarFieldContainer[float]
    level_deltas: _containers.RepeatedScalarFieldContainer[float]
    equal_owners: bool
    def __init__(self, variant: _Optional[str] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ..., max_corrupt: _Optional[int] = ..., joint: _Optional[bool] = ..., part_floor: _Optional[int] = ..., planned_mixture: _Optional[bool] = ..., smallest_owner: _Optional[int] = ..., group_column: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., level_alphas: _Optional[_Iterable[float]] = ..., level_deltas: _Optional[_Iterable[float]] = ..., equal_owners: _Optional[bool] = ...) -> None: ...

class PairTerms(_message.Message):
    __slots__ = ("variant", "channel", "epsilon", "delta", "max_corrupt", "joint", "class_floor")
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    MAX_CORRUPT_FIELD_NUMBER: _ClassVar[int]
    JOINT_FIELD_NUMBER: _ClassVar[int]
    CLASS_FLOOR_FIELD_NUMBER: _ClassVar[int]
    variant: str
    channel: str
    epsilon: float
    delta: float
    max_corrupt: int
    joint: bool
    class_floor: int
    def __init__(self, variant: _Optional[str] = ..., channel: _Optional[str] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ..., max_corrupt: _Optional[int] = ..., joint: _Optional[bool] = ..., class_floor: _Optional[int] = ...) -> None: ...

class MonitorTerms(_message.Message):
    __slots__ = ("variant", "epsilon", "delta", "max_corrupt", "threshold", "card", "periods")
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    MAX_CORRUPT_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    PERIODS_FIELD_NUMBER: _ClassVar[int]
    variant: str
    epsilon: float
    delta: float
    max_corrupt: int
    threshold: float
    card: bytes
    periods: int
    def __init__(self, variant: _Optional[str] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ..., max_corrupt: _Optional[int] = ..., threshold: _Optional[float] = ..., card: _Optional[bytes] = ..., periods: _Optional[int] = ...) -> None: ...

class LabelTerms(_message.Message):
    __slots__ = ("variant", "channel", "epsilon", "delta", "max_corrupt", "sent_features", "ladder", "largest_set", "joint", "class_floor", "part_floor", "group_column", "groups", "level_alphas", "level_deltas")
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    MAX_CORRUPT_FIELD_NUMBER: _ClassVar[int]
    SENT_FEATURES_FIELD_NUMBER: _ClassVar[int]
    LADDER_FIELD_NUMBER: _ClassVar[int]
    LARGEST_SET_FIELD_NUMBER: _ClassVar[int]
    JOINT_FIELD_NUMBER: _ClassVar[int]
    CLASS_FLOOR_FIELD_NUMBER: _ClassVar[int]
    PART_FLOOR_FIELD_NUMBER: _ClassVar[int]
    GROUP_COLUMN_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_ALPHAS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_DELTAS_FIELD_NUMBER: _ClassVar[int]
    variant: str
    channel: str
    epsilon: float
    delta: float
    max_corrupt: int
    sent_features: int
    ladder: _containers.RepeatedScalarFieldContainer[float]
    largest_set: int
    joint: bool
    class_floor: int
    part_floor: int
    group_column: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    level_alphas: _containers.RepeatedScalarFieldContainer[float]
    level_deltas: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, variant: _Optional[str] = ..., channel: _Optional[str] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ..., max_corrupt: _Optional[int] = ..., sent_features: _Optional[int] = ..., ladder: _Optional[_Iterable[float]] = ..., largest_set: _Optional[int] = ..., joint: _Optional[bool] = ..., class_floor: _Optional[int] = ..., part_floor: _Optional[int] = ..., group_column: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., level_alphas: _Optional[_Iterable[float]] = ..., level_deltas: _Optional[_Iterable[float]] = ...) -> None: ...

class CentralTerms(_message.Message):
    __slots__ = ("variant", "mechanism", "epsilon", "privacy_delta", "bins", "beta", "noise_variance", "grid", "delta", "given_edges", "by", "parts", "group_column", "groups")
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_DELTA_FIELD_NUMBER: _ClassVar[int]
    BINS_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    NOISE_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    GIVEN_EDGES_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_COLUMN_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    variant: str
    mechanism: str
    epsilon: float
    privacy_delta: float
    bins: int
    beta: float
    noise_variance: int
    grid: str
    delta: float
    given_edges: _containers.RepeatedScalarFieldContainer[float]
    by: str
    parts: int
    group_column: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, variant: _Optional[str] = ..., mechanism: _Optional[str] = ..., epsilon: _Optional[float] = ..., privacy_delta: _Optional[float] = ..., bins: _Optional[int] = ..., beta: _Optional[float] = ..., noise_variance: _Optional[int] = ..., grid: _Optional[str] = ..., delta: _Optional[float] = ..., given_edges: _Optional[_Iterable[float]] = ..., by: _Optional[str] = ..., parts: _Optional[int] = ..., group_column: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class FullDataTerms(_message.Message):
    __slots__ = ("variant", "mechanism", "epsilon", "privacy_delta", "bins", "beta", "noise_variance", "training_noise", "training_rate", "training_steps", "training_delta", "grid", "delta", "given_edges", "by", "parts", "group_column", "groups")
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_DELTA_FIELD_NUMBER: _ClassVar[int]
    BINS_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    NOISE_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    TRAINING_NOISE_FIELD_NUMBER: _ClassVar[int]
    TRAINING_RATE_FIELD_NUMBER: _ClassVar[int]
    TRAINING_STEPS_FIELD_NUMBER: _ClassVar[int]
    TRAINING_DELTA_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    GIVEN_EDGES_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_COLUMN_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    variant: str
    mechanism: str
    epsilon: float
    privacy_delta: float
    bins: int
    beta: float
    noise_variance: int
    training_noise: float
    training_rate: float
    training_steps: int
    training_delta: float
    grid: str
    delta: float
    given_edges: _containers.RepeatedScalarFieldContainer[float]
    by: str
    parts: int
    group_column: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, variant: _Optional[str] = ..., mechanism: _Optional[str] = ..., epsilon: _Optional[float] = ..., privacy_delta: _Optional[float] = ..., bins: _Optional[int] = ..., beta: _Optional[float] = ..., noise_variance: _Optional[int] = ..., training_noise: _Optional[float] = ..., training_rate: _Optional[float] = ..., training_steps: _Optional[int] = ..., training_delta: _Optional[float] = ..., grid: _Optional[str] = ..., delta: _Optional[float] = ..., given_edges: _Optional[_Iterable[float]] = ..., by: _Optional[str] = ..., parts: _Optional[int] = ..., group_column: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class TrainingTerms(_message.Message):
    __slots__ = ("variant", "epsilon", "privacy_delta", "architecture", "arguments", "source", "parameters", "size", "features", "outputs", "noise_multiplier", "sampling_rate", "rounds", "local_steps", "clip", "batch", "learning_rate", "momentum", "averaged_rounds", "centre", "loss_share", "loss_noise", "target_low", "target_high")
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_DELTA_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    NOISE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    AVERAGED_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    CENTRE_FIELD_NUMBER: _ClassVar[int]
    LOSS_SHARE_FIELD_NUMBER: _ClassVar[int]
    LOSS_NOISE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LOW_FIELD_NUMBER: _ClassVar[int]
    TARGET_HIGH_FIELD_NUMBER: _ClassVar[int]
    variant: str
    epsilon: float
    privacy_delta: float
    architecture: str
    arguments: str
    source: bytes
    parameters: bytes
    size: int
    features: int
    outputs: int
    noise_multiplier: float
    sampling_rate: float
    rounds: int
    local_steps: int
    clip: float
    batch: float
    learning_rate: float
    momentum: float
    averaged_rounds: int
    centre: float
    loss_share: float
    loss_noise: float
    target_low: float
    target_high: float
    def __init__(self, variant: _Optional[str] = ..., epsilon: _Optional[float] = ..., privacy_delta: _Optional[float] = ..., architecture: _Optional[str] = ..., arguments: _Optional[str] = ..., source: _Optional[bytes] = ..., parameters: _Optional[bytes] = ..., size: _Optional[int] = ..., features: _Optional[int] = ..., outputs: _Optional[int] = ..., noise_multiplier: _Optional[float] = ..., sampling_rate: _Optional[float] = ..., rounds: _Optional[int] = ..., local_steps: _Optional[int] = ..., clip: _Optional[float] = ..., batch: _Optional[float] = ..., learning_rate: _Optional[float] = ..., momentum: _Optional[float] = ..., averaged_rounds: _Optional[int] = ..., centre: _Optional[float] = ..., loss_share: _Optional[float] = ..., loss_noise: _Optional[float] = ..., target_low: _Optional[float] = ..., target_high: _Optional[float] = ...) -> None: ...

class SignedPlan(_message.Message):
    __slots__ = ("plan", "key", "signature")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    plan: bytes
    key: bytes
    signature: bytes
    def __init__(self, plan: _Optional[bytes] = ..., key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("version", "plan", "round", "body")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    version: int
    plan: bytes
    round: int
    body: bytes
    def __init__(self, version: _Optional[int] = ..., plan: _Optional[bytes] = ..., round: _Optional[int] = ..., body: _Optional[bytes] = ...) -> None: ...

class BitQuery(_message.Message):
    __slots__ = ("start", "stop", "thresholds", "each")
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    THRESHOLDS_FIELD_NUMBER: _ClassVar[int]
    EACH_FIELD_NUMBER: _ClassVar[int]
    start: float
    stop: float
    thresholds: _containers.RepeatedScalarFieldContainer[float]
    each: bool
    def __init__(self, start: _Optional[float] = ..., stop: _Optional[float] = ..., thresholds: _Optional[_Iterable[float]] = ..., each: _Optional[bool] = ...) -> None: ...

class PairQuery(_message.Message):
    __slots__ = ("start", "stop", "thresholds", "labels")
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    THRESHOLDS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    start: float
    stop: float
    thresholds: _containers.RepeatedScalarFieldContainer[float]
    labels: int
    def __init__(self, start: _Optional[float] = ..., stop: _Optional[float] = ..., thresholds: _Optional[_Iterable[float]] = ..., labels: _Optional[int] = ...) -> None: ...

class LabelQuery(_message.Message):
    __slots__ = ("start", "stop")
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    start: float
    stop: float
    def __init__(self, start: _Optional[float] = ..., stop: _Optional[float] = ...) -> None: ...

class CountQuery(_message.Message):
    __slots__ = ("threshold", "thresholds")
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    THRESHOLDS_FIELD_NUMBER: _ClassVar[int]
    threshold: float
    thresholds: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, threshold: _Optional[float] = ..., thresholds: _Optional[_Iterable[float]] = ...) -> None: ...

class TrainingQuery(_message.Message):
    __slots__ = ("weights",)
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    weights: bytes
    def __init__(self, weights: _Optional[bytes] = ...) -> None: ...

class ReportBatch(_message.Message):
    __slots__ = ("version", "plan", "round", "ids", "seeded", "body", "body_bytes", "body_start", "handover")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    SEEDED_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    BODY_START_FIELD_NUMBER: _ClassVar[int]
    HANDOVER_FIELD_NUMBER: _ClassVar[int]
    version: int
    plan: bytes
    round: int
    ids: bytes
    seeded: bool
    body: bytes
    body_bytes: int
    body_start: int
    handover: SignedHandover
    def __init__(self, version: _Optional[int] = ..., plan: _Optional[bytes] = ..., round: _Optional[int] = ..., ids: _Optional[bytes] = ..., seeded: _Optional[bool] = ..., body: _Optional[bytes] = ..., body_bytes: _Optional[int] = ..., body_start: _Optional[int] = ..., handover: _Optional[_Union[SignedHandover, _Mapping]] = ...) -> None: ...

class Handover(_message.Message):
    __slots__ = ("plan", "round", "reports", "digest", "owners", "largest")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    plan: bytes
    round: int
    reports: int
    digest: bytes
    owners: int
    largest: int
    def __init__(self, plan: _Optional[bytes] = ..., round: _Optional[int] = ..., reports: _Optional[int] = ..., digest: _Optional[bytes] = ..., owners: _Optional[int] = ..., largest: _Optional[int] = ...) -> None: ...

class SignedHandover(_message.Message):
    __slots__ = ("handover", "signature")
    HANDOVER_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    handover: bytes
    signature: bytes
    def __init__(self, handover: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class SealedReports(_message.Message):
    __slots__ = ("sealed",)
    SEALED_FIELD_NUMBER: _ClassVar[int]
    sealed: bytes
    def __init__(self, sealed: _Optional[bytes] = ...) -> None: ...

class BitReports(_message.Message):
    __slots__ = ("parts", "reports", "groups")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    parts: bytes
    reports: bytes
    groups: bytes
    def __init__(self, parts: _Optional[bytes] = ..., reports: _Optional[bytes] = ..., groups: _Optional[bytes] = ...) -> None: ...

class PairReports(_message.Message):
    __slots__ = ("parts", "reports")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    parts: bytes
    reports: bytes
    def __init__(self, parts: _Optional[bytes] = ..., reports: _Optional[bytes] = ...) -> None: ...

class LabelReports(_message.Message):
    __slots__ = ("reports", "probabilities", "features", "groups")
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    reports: bytes
    probabilities: bytes
    features: bytes
    groups: bytes
    def __init__(self, reports: _Optional[bytes] = ..., probabilities: _Optional[bytes] = ..., features: _Optional[bytes] = ..., groups: _Optional[bytes] = ...) -> None: ...

class Counts(_message.Message):
    __slots__ = ("counts",)
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    counts: bytes
    def __init__(self, counts: _Optional[bytes] = ...) -> None: ...

class Weights(_message.Message):
    __slots__ = ("weights", "records", "errors")
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    weights: bytes
    records: int
    errors: int
    def __init__(self, weights: _Optional[bytes] = ..., records: _Optional[int] = ..., errors: _Optional[int] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("version", "code", "accepted", "duplicates")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    version: int
    code: Code
    accepted: int
    duplicates: int
    def __init__(self, version: _Optional[int] = ..., code: _Optional[_Union[Code, str]] = ..., accepted: _Optional[int] = ..., duplicates: _Optional[int] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("version", "code", "batch")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    version: int
    code: Code
    batch: ReportBatch
    def __init__(self, version: _Optional[int] = ..., code: _Optional[_Union[Code, str]] = ..., batch: _Optional[_Union[ReportBatch, _Mapping]] = ...) -> None: ...
