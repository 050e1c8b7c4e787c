"""An experiment, as a TOML file says it: what is compared, on which populations, how often."""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from confide.protocol.errors import BadInput, check_choice, check_epsilon, check_probability
from confide.protocol.simulated.attendance import Attendance

# Arrays in process; the code of owners and aggregator in process; the same over Flower.
PROCESS, CLIENT, FLOWER = "process", "client", "flower"
MOST_TRIALS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class PopulationTerms:
    """Where records come from, how owners hold them, and which owners answer.

    `data` is a file of records, or empty for the embedded letters. Without `owners` there are as
    many as a federation has by default. The other names are those of `confide federation`.
    """

    data: str = ""
    owner_column: str = ""
    replacement: bool = False
    owners: int = 50
    sizes: str = "1"
    concentration: float = 0.0
    covariate_shift: float = 0.0
    dropout: float = 0.0
    round_dropout: float = 0.0
    stragglers: float = 0.0
    lateness: float = 0.5

    def __post_init__(self) -> None:
        if self.owners < 1:
            raise BadInput(f"owners is {self.owners}; accepted is at least 1")
        Attendance.of(self.config(0), owners=self.owners)

    def config(self, seed: int) -> dict[str, Any]:
        """These terms as settings of a run, for one seed."""
        named = {key.replace("_", "-"): value for key, value in asdict(self).items()}
        del named["owners"]
        return named | {"seed": seed, "records": 0, "scoring": "owner", "model-file": ""}

    @property
    def content(self) -> str:
        """The SHA-256 of the file of records, so that a changed one makes another population."""
        return hashlib.sha256(Path(self.data).read_bytes()).hexdigest() if self.data else ""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that is compared: the cells are all combinations of the lists."""

    methods: tuple[str, ...]
    title: str = ""
    where: str = PROCESS
    trials: int = 20
    seed: int = 1
    alpha: float = 0.1
    failure_probability: float = 0.1
    scores: tuple[str, ...] = ("hps",)
    budgets: tuple[float, ...] = (1.0,)
    sizes: tuple[int, ...] = (4_000,)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    populations: Mapping[str, PopulationTerms] = field(
        default_factory=lambda: {"embedded": PopulationTerms()}
    )

    def __post_init__(self) -> None:
        check_choice("where", self.where, (PROCESS, CLIENT, FLOWER))
        check_probability("alpha", self.alpha)
        check_probability("failure-probability", self.failure_probability)
        for name in ("methods", "scores", "budgets", "sizes", "populations"):
            if not getattr(self, name):
                raise BadInput(f"{name} is empty; accepted is at least one")
        for name in ("methods", "scores", "budgets", "sizes"):
            given = getattr(self, name)
            if len(set(given)) < len(given):
                raise BadInput(f"{name} are {list(given)}; accepted is each of them once")
        for epsilon in self.budgets:
            check_epsilon(epsilon)
        if not 1 <= self.trials <= MOST_TRIALS or self.seed < 0 or min(self.sizes) < 1:
            raise BadInput(
                f"trials is {self.trials}, seed {self.seed}, sizes {list(self.sizes)}; accepted "
                f"are 1 to {MOST_TRIALS} trials, a seed of 0 or more, and sizes above 0"
            )
        stray = sorted({*self.settings} - {*self.methods})
        if stray:
            raise BadInput(
                f"settings are given for {stray[0]!r}; accepted are methods of this experiment: "
                f"{', '.join(self.methods)}"
            )


def read_experiment(path: Path) -> Experiment:
    """Read a file; an error says what was found, what is accepted, and where."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        said = f"{path} cannot be read: {error.strerror}; accepted is a TOML file"
        raise BadInput(said) from None
    except ValueError as error:
        raise BadInput(f"{path} is no TOML file: {error}") from None
    try:
        return _experiment(given, folder=path.resolve().parent)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _experiment(given: dict[str, Any], *, folder: Path) -> Experiment:
    values = _values(Experiment, given, "")
    if "methods" not in values:
        raise BadInput('methods is missing; accepted is a list such as ["bits:certified"]')
    tables = values.pop("populations", None)
    if tables is not None:
        values["populations"] = {
            name: _population(table, f"populations.{name}", folder)
            for name, table in _tables("populations", tables).items()
        }
    if "settings" in values:
        values["settings"] = _tables("settings", values["settings"])
    return Experiment(**values)


def _population(table: dict[str, Any], where: str, folder: Path) -> PopulationTerms:
    values = _values(PopulationTerms, table, where)
    if values.get("data"):
        values["data"] = str((folder / values["data"]).resolve())
        if not Path(values["data"]).is_file():
            raise BadInput(f"[{where}] data is {values['data']}; accepted is a file that exists")
    try:
        return PopulationTerms(**values)
    except BadInput as error:
        raise BadInput(f"[{where}] {error}") from None


def _tables(name: str, found: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise BadInput(f"{name} is no table of tables; accepted are [{name}.NAME] with keys")
    return found


def _values(kind: type, given: dict[str, Any], where: str) -> dict[str, Any]:
    """The values of a dataclass by their names in the file; refuse other names and other types."""
    known = {one.name.replace("_", "-"): one for one in fields(kind)}
    place = f"[{where}] " if where else ""
    values = {}
    for key, value in given.items():
        if key not in known:
            raise BadInput(f"{place}key {key!r} is unknown; accepted: {', '.join(sorted(known))}")
        values[known[key].name] = _typed(f"{place}{key}", value, str(known[key].type))
    return values


# What a value of a type in the file must be, in words and as a test, and what it becomes.
_KINDS: dict[str, tuple[str, Any, Any]] = {
    "str": ("a text", lambda v: isinstance(v, str), str),
    "bool": ("true or false", lambda v: isinstance(v, bool), bool),
    "int": ("a whole number", lambda v: type(v) is int, int),
    "float": ("a number", lambda v: type(v) in (int, float), float),
}


def _typed(name: str, value: Any, kind: str) -> Any:
    kind = kind.removeprefix("<class '").removesuffix("'>")
    if kind.startswith("tuple["):
        words, accepts, become = _KINDS[kind[len("tuple[") :].partition(",")[0]]
        if not isinstance(value, list) or not all(map(accepts, value)):
            raise BadInput(f"{name} is {value!r}; accepted is a list, each {words}")
        return tuple(map(become, value))
    if kind not in _KINDS:
        return value
    words, accepts, become = _KINDS[kind]
    if not accepts(value):
        raise BadInput(f"{name} is {value!r}; accepted is {words}")
    return become(value)
