"""Draws `docs/architecture.svg`: `python docs/draw_architecture.py [FILE]`.

Where a box stands is written here, what it uses is read from the code. A step of the path that is
not in the code, or a module without a box, stops the drawing.
"""

import ast
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "client": "the data owner's side",
    "protocol": "what both sides agree on",
    "aggregator": "the operator's side",
    "shuffler": "between the two: mixes sealed reports",
    "simulation": "everything on one machine",
}
COLUMNS = {"client": 20, "protocol": 405, "aggregator": 790}
WIDTH, COLUMN, BOX, HEIGHT, ROW, TOP = 1155, 345, 154, 88, 112, 96
GUTTER = COLUMN - 16 - 2 * BOX
STRIPS = {"shuffler": TOP + 6 * ROW + 34, "simulation": TOP + 6 * ROW + HEIGHT + 106}
END = STRIPS["simulation"] + HEIGHT + ROW + 66
BESIDE = "beside the rooms"
USERS = "driver curve_users arrays presence planning"
STYLE = """text{font:12px system-ui,sans-serif;fill:#1f2933}.n{font-weight:600}
.s{font-size:9.5px;fill:#52606d}.p{font-size:15px;font-weight:600}
.c{fill:#f5f7fa;stroke:#cbd2d9}.b{fill:#fff;stroke:#7b8794}
.e{stroke:#9aa5b1;fill:none;marker-end:url(#a)}.m{stroke:#0b69a3;stroke-width:2;fill:none;
marker-end:url(#m)}.d{fill:#0b69a3}.t{fill:#fff;font-size:10px;font-weight:600}"""
MARKER = """<marker id="{}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"
orient="auto"><path d="M0 0L8 4L0 8z" fill="{}"/></marker>"""


@dataclass(frozen=True)
class Room:
    """A box: the modules that it stands for, its place in its package, and what it is for."""

    package: str
    name: str
    place: tuple[int, int]
    purpose: str
    modules: tuple[str, ...]

    @property
    def corner(self) -> tuple[int, int]:
        column, row = self.place
        if self.package in STRIPS:
            return 30 + 275 * column, STRIPS[self.package] + 36 + ROW * row
        return COLUMNS[self.package] + 8 + column * (BOX + GUTTER), TOP + row * ROW

    @property
    def width(self) -> int:
        return 265 if self.package in STRIPS else BOX


LISTED = f"""
client 0 0 cli: confide-client: cli __main__
client 1 0 flower_app: a node of Flower: flower_app simulated
client 0 1 transport: gRPC, retries, launcher
client 1 1 owner: folder and records opened: owner home
client 0 2 respond: one query, one answer: respond answering
client 1 2 policy: what the owner allows: policy policy_template explain
client 0 3 ledger: what each record has spent
client 1 3 records: files, cached scores
client 0 4 training: DP-SGD at the owner
client 1 4 erm: linear models, exact noise
protocol 0 0 cards/verify: verifies a card
protocol 1 0 cards: contract cards
protocol 0 1 plan: signed plans, queries: plan chain_cost sealing shuffling
protocol 1 1 certificate: promises, predictions: certificate levels prediction watch
protocol 0 2 methods: terms, queries, tallies
protocol 1 2 wire: messages as bytes
protocol 0 3 channels: local randomisers
protocol 1 3 scores: conformity scores
protocol 0 4 architectures: networks, ONNX models: architectures models
protocol 1 4 privacy: the cost of mechanisms
protocol 0 5 exact: exact arithmetic, sampling
protocol 1 5 {BESIDE}:: errors files commands tensors version record_files simulated
aggregator 0 0 cli: two command lines: cli __main__
aggregator 1 0 flower_app: Flower's server side: flower_app flower_messages
aggregator 0 1 server: gRPC, advance of campaigns
aggregator 1 1 web: the read-only page, metrics
aggregator 0 2 storage: the database
aggregator 1 2 cards: cards, and their search
aggregator 0 3 campaigns: plans, admission, driver
aggregator 0 4 procedures: calibration without I/O
aggregator 0 5 quantiles: private quantiles
aggregator 1 5 {BESIDE}:: keys clock logs process_status
shuffler 0 0 cli: confide-shuffler: cli __main__ joining standing
shuffler 1 0 relay: asks owners, closes and hands over: relay closing
shuffler 2 0 mixing: a whole round in random order, signed
shuffler 3 0 storage: mixed rounds, until they are held
simulation 0 0 commands: confide: cli federation defaults predict_command
simulation 1 0 evaluate: what a method costs; experiments; papers: evaluate experiments reproduce
simulation 2 0 driver: users in arrays: {USERS}
simulation 3 0 data: embedded, synthetic and own records
simulation 0 1 advice: which method, and what it costs
simulation 1 1 attackers: liars, and lower bounds on epsilon
simulation 2 1 scale: many phones, planned and simulated
"""


def _read_rooms() -> list[Room]:
    """The rooms listed as `package column row name: purpose: modules`."""
    rooms = []
    for line in LISTED.strip().splitlines():
        head, purpose, modules = (part.strip() for part in f"{line}:".split(":")[:3])
        package, column, row, name = head.split(maxsplit=3)
        held = tuple(modules.split()) or (name.replace("/", "."),)
        rooms.append(Room(package, name, (int(column), int(row)), purpose, held))
    return rooms


ROOMS = _read_rooms()
# The path of a report, in the order of docs/architecture.md.
PATH = (
    "aggregator.campaigns.planning.plans:make_plan",
    "protocol.plan:sign_plan",
    "client.respond:Respondent",
    "client.policy:Policy",
    "client.ledger.ledger:Ledger",
    "protocol.methods.base:Query",
    "protocol.wire.packing:write_batch",
    "aggregator.campaigns.admission:read_answer",
    "aggregator.campaigns.driver:run_procedure",
    "aggregator.procedures.registry:plan_procedure",
    "protocol.certificate:Certificate",
    "aggregator.cards.issue:campaign_card",
    "protocol.cards.verify.card:verify",
)


def room_of(module: str) -> Room:
    """The room of a module such as `client.ledger.ledger`; the longest name that fits decides."""
    held = [(len(part), part, room) for room in ROOMS for part in room.modules]
    fitting = [one for one in held if f"{module}.".startswith(f"{one[2].package}.{one[1]}.")]
    if not fitting:
        raise SystemExit(f"{module} has no box; give it one in {Path(__file__).name}")
    return max(fitting, key=lambda found: found[0])[2]


def read_modules() -> dict[str, ast.Module]:
    """The syntax of every module of the packages, without generated code."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text())
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py" and not path.stem.endswith("_pb2")
    }


def imported(tree: ast.Module) -> set[str]:
    """What a module imports from the project, without the leading `confide.`."""
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    names = {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
    names |= {str(node.module) for node in froms}
    return {name.removeprefix("confide.") for name in names if name.startswith("confide.")}


def read_uses(modules: dict[str, ast.Module]) -> dict[Room, set[Room]]:
    """Which rooms each room imports from."""
    uses: dict[Room, set[Room]] = {room: set() for room in ROOMS}
    for module, tree in modules.items():
        used = {room_of(name) for name in imported(tree) if name in modules}
        uses[room_of(module)] |= used - {room_of(module)}
    return uses


def check_path(modules: dict[str, ast.Module]) -> None:
    """Stop where a step of the path names something that the code does not define."""
    for step in PATH:
        module, name = step.split(":")
        body = modules[module].body if module in modules else []
        if name not in {getattr(node, "name", None) for node in body}:
            raise SystemExit(f"{step} is on the path of a report and not in the code")


def _longest_first(edge: tuple[Room, Room]) -> tuple[int, str, str]:
    (x, y), (u, v) = (room.corner for room in edge)
    return -abs(x - u) - abs(y - v), edge[0].name, edge[1].name


def needed_lines(uses: dict[Room, set[Room]]) -> list[tuple[Room, Room]]:
    """The uses inside a package, without those that a longer way through others shows already."""
    kept = {
        (one, other)
        for one in ROOMS
        for other in uses[one]
        if one.package == other.package and BESIDE not in (one.name, other.name)
    }
    for edge in sorted(kept, key=_longest_first):
        rest, reached = kept - {edge}, {edge[0]}
        while further := {other for one, other in rest if one in reached} - reached:
            reached |= further
        if edge[1] in reached:
            kept.remove(edge)
    return sorted(kept, key=lambda found: (found[0].package, found[0].name, found[1].name))


def draw_line(one: Room, other: Room) -> str:
    """A line from a room to one that it uses: sideways, through the gutter, or straight."""
    (x, y), (u, v) = one.corner, other.corner
    if y == v:
        if abs(one.place[0] - other.place[0]) > 1:
            below, side = y + HEIGHT, 30 if x < u else -30
            x, u = x + one.width // 2 + side, u + other.width // 2 - side
            return f'<path class="e" d="M{x} {below}v14H{u}V{below}"/>'
        start, end = (x + one.width, u) if x < u else (x, u + other.width)
        level = y + HEIGHT // 2 + (8 if x < u else -8)
        return f'<path class="e" d="M{start} {level}H{end}"/>'
    # Of two rooms that use each other, each line keeps to its side.
    shift = 8 if y < v else -8
    if abs(v - y) > ROW:
        gutter = COLUMNS[one.package] + COLUMN // 2 + shift // 2
        start, end = (x + BOX * (1 - room.place[0]) for x, room in ((x, one), (u, other)))
        return f'<path class="e" d="M{start} {y + 70}H{gutter}V{v + 22}H{end}"/>'
    out, into = (y + HEIGHT, v) if y < v else (y, v + HEIGHT)
    return f'<path class="e" d="M{x + BOX // 2 + shift} {out}L{u + BOX // 2 + shift} {into}"/>'


def _texts(room: Room, uses: set[Room]) -> list[str]:
    """The lines in a box: what it is for, and which rooms of other packages it uses."""
    room_for = room.width // 5 - 3
    if room.name == BESIDE:
        return wrap(", ".join(room.modules), room_for)
    lines = wrap(room.purpose, room_for)
    others = [one for one in uses if one.package != room.package and one.name != BESIDE]
    if room.package == "simulation":
        return lines  # It uses everything.
    others.sort(key=lambda one: (one.package != "protocol", one.package, one.name))
    names = [f"{one.package}.{one.name}".removeprefix("protocol.") for one in others]
    lines += wrap(f"uses {', '.join(names)}", room_for) if names else []
    assert len(lines) <= 6, f"the text of {room.package}/{room.name} does not fit its box"
    return lines


def draw_room(room: Room, uses: set[Room]) -> str:
    """A box with its name and texts, and its steps on the path of a report."""
    x, y = room.corner
    steps = [i for i, step in enumerate(PATH, 1) if room_of(step.split(":")[0]) == room]
    parts = [f'<rect class="b" x="{x}" y="{y}" width="{room.width}" height="{HEIGHT}" rx="4"/>']
    parts += [f'<text class="n" x="{x + 7}" y="{y + 16}">{escape(room.name)}</text>']
    for level, line in enumerate(_texts(room, uses)):
        place = f'x="{x + 7}" y="{y + 29 + 11 * level}"'
        parts += [f'<text class="s" {place}>{escape(line)}</text>']
    for i, step in enumerate(reversed(steps)):
        middle = x + room.width - 13 - 20 * i
        parts += [f'<circle class="d" cx="{middle}" cy="{y + 12}" r="8.5"/>']
        parts += [f'<text class="t" x="{middle}" y="{y + 16}" text-anchor="middle">{step}</text>']
    return "".join(parts)


def draw_package(package: str) -> str:
    """The frame of a package and its name."""
    x, y = (20, STRIPS[package]) if package in STRIPS else (COLUMNS[package], TOP - 36)
    width, height = (WIDTH - 40, HEIGHT + 54) if package in STRIPS else (COLUMN, 6 * ROW + 26)
    height += ROW if package == "simulation" else 0
    return (
        f'<rect class="c" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        f'<text x="{x + 12}" y="{y + 24}"><tspan class="p">{package}</tspan>'
        f'<tspan dx="8">{escape(PACKAGES[package])}</tspan></text>'
    )


def draw_message(text: str, *, y: int, to_client: bool) -> str:
    """An arrow from one side to the other."""
    sides = COLUMNS["client"] + COLUMN - 100, COLUMNS["aggregator"] + 100
    start, end = sides[::-1] if to_client else sides
    place = f'x="{WIDTH // 2}" y="{y - 5}" text-anchor="middle"'
    return f'<path class="m" d="M{start} {y}H{end}"/><text {place}>{text}</text>'


def draw() -> str:
    """The picture of the code as it is now."""
    check_path(modules := read_modules())
    uses = read_uses(modules)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {END}" role="img">',
        "<title>The rooms of the code and the path of a report</title>",
        f"<style>{STYLE}</style>",
        f"<defs>{MARKER.format('a', '#9aa5b1')}{MARKER.format('m', '#0b69a3')}</defs>",
        f'<rect width="{WIDTH}" height="{END}" fill="#fff"/>',
        draw_message("signed plan, queries", y=24, to_client=True),
        draw_message("answers: randomised reports, or counts", y=48, to_client=False),
        *(draw_package(package) for package in PACKAGES),
        *(draw_line(*edge) for edge in needed_lines(uses)),
        *(draw_room(room, uses[room]) for room in ROOMS),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    where = Path(*sys.argv[1:] or [ROOT / "docs" / "architecture.svg"])
    where.write_text(draw(), encoding="utf-8")
