"""What a hostile aggregator did to a data owner's machine, each attack against the owner's real
command."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri

from confide.client.home import Home
from confide.client.ledger import Ledger
from confide.client.owner import open_owner
from confide.client.training.layers import Stack
from confide.protocol.channels.kinds import Bit
from confide.protocol.exact.lattice import CLIP_UNITS
from confide.protocol.exact.sampling import os_entropy, words
from confide.protocol.methods.queries import (
    BitQuery,
    CountQuery,
    HistogramQuery,
    LabelQuery,
    TrainingQuery,
)
from confide.protocol.methods.training import Terms, first_weights
from confide.protocol.plan import EXACT_COUNTS, NOISED_COUNTS, Plan, digest, sign_plan
from confide.protocol.privacy.renyi import training_noise
from confide.protocol.privacy.zcdp import search_variance
from confide.protocol.wire import wire_pb2 as wire
from tests.support.graphs import (
    copying,
    ending,
    external,
    failing,
    first_feature,
    not_a_number,
    written,
)
from tests.support.hostile import Puppet
from tests.support.owners import KEY, PUBLIC
from tests.support.places import ROOT
from tests.support.servers import client, plan_now

N, SURE = 200, 20.0
PLAN = plan_now(labels=2, epsilon=SURE)
HALF = BitQuery(Bit(epsilon=SURE), 0.0, 1.0, (0.5,))


def home(folder: Path, *models: bytes, **changes: Any) -> Path:
    """An owner's folder with a policy that trusts the tests' key; other clauses by name."""
    place = Home(folder / "home")
    place.create()
    clauses = {
        "aggregators": f'["{PUBLIC.hex()}"]',
        "models": str([model.hex() for model in models]).replace("'", '"'),
        "epsilon_per_record": "20.0",
        "epsilon_per_campaign": "20.0",
    } | changes
    text = place.policy_file.read_text()
    for name, value in clauses.items():
        text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1
    place.policy_file.write_text(text)
    return place.folder


def people(path: Path, features: Any, labels: Any = None) -> Path:
    """A file of records with ids."""
    labels = np.zeros(len(features), dtype=np.int64) if labels is None else labels
    np.savez(
        path,
        ids=np.arange(len(features)),
        labels=labels,
        features=np.asarray(features, dtype=np.float64),
    )
    return path


def crowd(first: float) -> Any:
    """The target, whose secret is its first feature, and others that all have 0.4."""
    features = np.full((N, 2), 0.4)
    features[0, 0] = first
    return features


def ones(answer: wire.Answer) -> int:
    return int(np.unpackbits(np.frombuffer(answer.batch.reports, dtype=np.uint8)).sum())


def test_no_record_speaks_through_another(tmp_path: Path) -> None:
    """1. A model that copies one row to all rows: two files that differ in one record differ in one
    bit, and in one count.

    At epsilon 20 a bit is flipped with probability 2e-9; noised counts have a standard deviation
    below 20.
    """
    path, name = written(tmp_path, copying())
    noise = search_variance(bins=4, epsilon=SURE, delta=1e-6)
    counts = plan_now(
        replace(
            PLAN,
            method="central",
            variant="owner-noised",
            channel=NOISED_COUNTS,
            mechanism="gaussian-search",
            bins=4,
            delta=0.0,
            beta=0.01,
            privacy_delta=1e-6,
            noise_variance=noise,
        )
    )
    trusted = replace(
        counts,
        variant="trusted",
        channel=EXACT_COUNTS,
        mechanism="rank-exponential",
        privacy_delta=0.0,
        noise_variance=0,
    )
    seen: dict[str, list[Any]] = {"bits": [], "count": [], "exact": []}
    allowed = {"methods": '["bits", "central"]', "exact_counts_may_leave": "true"}
    for number, first in enumerate((0.9, 0.1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        records = people(folder / "records.npz", crowd(first))
        questions: dict[str, tuple[Plan, Any]] = {
            "bits": (PLAN, HALF),
            "count": (counts, CountQuery(0.5, noise)),
            "exact": (trusted, HistogramQuery(4)),
        }
        for kind, (plan, query) in questions.items():
            place = home(
                folder / kind, name, **allowed, delta_per_record="0.5", delta_per_campaign="0.5"
            )
            with Puppet(replace(plan, model=name), query) as puppet:
                assert puppet.ask(place, records, "--model", path) == 0
            (answer,) = puppet.answers
            assert answer.code == wire.Code.OK
            values = np.frombuffer(answer.batch.counts, dtype="<i8")
            seen[kind].append(ones(answer) if kind == "bits" else values)
    assert abs(seen["bits"][0] - seen["bits"][1]) == 1
    assert abs(int(seen["count"][0][1]) - int(seen["count"][1][1])) < N / 2
    assert np.abs(seen["exact"][0] - seen["exact"][1]).sum() == 2


class Payload:
    """Code that a pickle runs when it is read."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (self.mark,)


def test_a_torch_program_is_not_opened(tmp_path: Path) -> None:
    """2. An exported program with code in its sample inputs: `doctor` and `contribute` refuse it,
    and nothing of it runs."""
    torch = pytest.importorskip("torch")
    mark, path, buffer = tmp_path / "mark", tmp_path / "model.pt2", io.BytesIO()
    torch.export.save(
        torch.export.export(torch.nn.Softmax(1), (torch.zeros(2, 2),)), tmp_path / "good.pt2"
    )
    torch.save(Payload(str(mark)), buffer)
    with zipfile.ZipFile(tmp_path / "good.pt2") as good, zipfile.ZipFile(path, "w") as bad:
        for entry in good.namelist():
            bad.writestr(entry, buffer.getvalue() if "sample_inputs" in entry else good.read(entry))
    name = written(tmp_path, path.read_bytes(), "model.pt2")[1]
    place, records = home(tmp_path, name), people(tmp_path / "records.npz", crowd(0.9))
    code, shown = client("doctor", "--home", place, "--records", records, "--model", path)
    assert (code, "export it to .onnx" in shown) == (1, True)
    with Puppet(replace(PLAN, model=name), HALF) as puppet:
        assert puppet.ask(place, records, "--model", path) == 2
    assert puppet.answers == []
    assert not mark.exists()


def test_a_model_reads_no_file_beside_it(tmp_path: Path) -> None:
    """3. Weights that are the bytes of the records' file: refused, also where the digest is
    allowed; no answer leaves."""
    records = people(tmp_path / "records.npz", crowd(0.9))
    path, name = written(tmp_path, external("records.npz"))
    place = home(tmp_path, name)
    code, shown = client("doctor", "--home", place, "--model", path)
    assert (code, "kept outside the file" in shown) == (1, True)
    with Puppet(replace(PLAN, model=name), HALF) as puppet:
        assert puppet.ask(place, records, "--model", path) == 2
    assert puppet.answers == []
    one = open_owner(Home(place), records, path)
    assert (
        wire.Answer.FromString(one.answer(puppet.signed, puppet.query)).code == wire.Code.INTERNAL
    )
    assert Home(place).ledger().spent_by_record() == (0, 0.0)


def test_a_model_is_allowed_before_it_is_opened(tmp_path: Path) -> None:
    """By default no model may score; another file than the one allowed is refused by its digest,
    and is not parsed."""
    records = people(tmp_path / "records.npz", crowd(0.9))
    path, name = written(tmp_path, first_feature())
    place = home(tmp_path)
    with Puppet(replace(PLAN, model=name), HALF) as puppet:
        assert puppet.ask(place, records, "--model", path) == 1
        assert puppet.codes == ["MODEL_NOT_ALLOWED"]
        assert client("allow", "model", path, "--home", place, "--yes")[0] == 0
        path.write_bytes(b"not a model at all")
        assert puppet.ask(place, records, "--model", path) == 1
        assert puppet.codes[1:] == ["MODEL_NOT_ALLOWED"]
        path.write_bytes(first_feature())
        assert puppet.ask(place, records, "--model", path) == 0
        assert puppet.codes[2:] == ["OK"]


STEPS = Terms(
    layers=(2, 2),
    noise_multiplier=training_noise(epsilon=4.0, delta=1e-6, sampling_rate=0.5, steps=4),
    sampling_rate=0.5,
    rounds=2,
    local_steps=2,
    clip=1.0,
    batch=100.0,
    learning_rate=1.0,
)
TRAINING = plan_now(
    replace(
        PLAN,
        method="training",
        variant="federated-averaging",
        channel="dp-sgd",
        epsilon=4.0,
        delta=0.0,
        privacy_delta=1e-6,
        training=STEPS,
    )
)
LEARNS = {"methods": '["training"]', "delta_per_record": "1e-5", "delta_per_campaign": "1e-5"}


def raw(plan: Plan, **changes: Any) -> bytes:
    """A signed plan with numbers that no `Plan` takes."""
    message = wire.Plan.FromString(plan.to_bytes())
    for field, value in changes.items():
        target = message.training if hasattr(message.training, field) else message
        setattr(target, field, value)
    data = message.SerializeToString(deterministic=True)
    signature = KEY.sign(b"confide plan v1\0" + data)
    return wire.SignedPlan(plan=data, key=PUBLIC, signature=signature).SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"clip": 1e200},
        {"clip": 1e-200},
        {"clip": 5e-324},
        {"batch": 1e-300},
        {"batch": 1e300},
        {"learning_rate": 1e300},
        {"learning_rate": 1e-300},
        {"noise_multiplier": 1e300},
        {"sampling_rate": 1e-300},
        {"local_steps": 1 << 20},
        {"rounds": 1 << 30},
        {"labels": 1 << 31},
        {"expected_records": 1 << 63},
    ],
)
def test_numbers_that_break_arithmetic_are_no_plan(changes: dict[str, Any], tmp_path: Path) -> None:
    """4 and 11. A clip of 1e200 made noise infinite, 2^20 steps kept the ledger locked: such plans
    are refused unread."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINING, TrainingQuery(first_weights(STEPS))) as puppet:
        puppet.signed = raw(TRAINING, **changes)
        puppet.campaign = digest(wire.SignedPlan.FromString(puppet.signed).plan).hex()[:16]
        assert puppet.ask(place, records) == 1
    assert puppet.answers == []
    (tmp_path / "plan.bin").write_bytes(puppet.signed)
    code, shown = client("explain", tmp_path / "plan.bin", "--home", place)
    assert (code, "not a signed plan" in shown) == (1, True)


# One step on one record, all of it in the answer: features, outputs and noise for the attack on the
# low-order bits.
WIDE = replace(
    STEPS,
    layers=(20_000, 2),
    noise_multiplier=2.0,
    sampling_rate=1.0,
    rounds=1,
    local_steps=1,
    batch=1.0,
    learning_rate=1.0,
)
TRIALS = 60


def guess(weights: NDArray[np.float32]) -> bool:
    """Whether a record took part, by low-order bits alone (Mironov 2012).

    From weights of 0 the record's gradient is 0.005 at every weight. In single precision 0.005 plus
    noise near -0.005 is a multiple of 2^-31, while noise alone that is as small as such a sum has
    more bits.
    """
    small = weights[np.abs(weights) < 2.0**-12].astype(np.float64)
    return len(small) > 0 and bool(np.all(small * 2.0**31 == np.rint(small * 2.0**31)))


def float_step(labels: Any) -> NDArray[np.float32]:
    """The same step with noise in floating point."""
    sums = Stack(WIDE, np.zeros(WIDE.size)).clipped_sum(np.ones((1, 20_000)), labels) / CLIP_UNITS
    noise = 2.0 * ndtri(((words(WIDE.size, 64, os_entropy) >> np.uint64(11)) + 0.5) * 2.0**-53)
    return -(sums.astype(np.float32) + noise.astype(np.float32))


def test_low_order_bits_do_not_tell_who_took_part(tmp_path: Path) -> None:
    """5. An aggregator that picks the weights and inspects every bit guesses at chance, and wins
    against float noise.

    False alarms: 50 or more of 60 fair guesses are right with probability 1e-7. The guess looks at
    bits that the two cases have alike, so it is fair whatever the gradient does to the larger ones.
    Against floating point a guess is wrong with probability about 0.015 (no weight is near 0), and
    more than 10 of 60 are with probability below 1e-8.
    """
    plan = replace(TRAINING, epsilon=SURE, training=WIDE)
    present, absent = np.array([0]), np.array([9])
    right = {"ours": 0, "floating point": 0}
    for trial in range(TRIALS):
        labels, folder = present if trial % 2 else absent, tmp_path / str(trial)
        place = home(folder, **LEARNS, minimum_group="1")
        with Puppet(plan, TrainingQuery(np.zeros(WIDE.size, dtype=np.float32))) as puppet:
            assert (
                puppet.ask(place, people(folder / "records.npz", np.ones((1, 20_000)), labels)) == 0
            )
        found = np.frombuffer(puppet.answers[0].batch.weights, dtype="<f4")
        # All weights near 0 are whole lattice units, whoever took part.
        units = found[np.abs(found) < 2.0**-8].astype(np.float64) * CLIP_UNITS
        assert np.array_equal(units, np.rint(units))
        right["ours"] += guess(found) == bool(trial % 2)
        right["floating point"] += guess(float_step(labels)) == bool(trial % 2)
    assert right["floating point"] >= 50
    assert right["ours"] < 50


def rewritten(folder: Path) -> list[Path]:
    """One file of records in eight ways to write it."""
    features, ids = np.random.default_rng(0).random((N, 2)), np.arange(N)
    labels = np.zeros(N, dtype=np.int64)
    single: dict[str, Any] = {
        "plain": {"ids": ids, "features": features},
        "single": {"ids": ids, "features": features.astype(np.float32)},
        "scaled": {"ids": ids, "features": features / 2},
        "float ids": {"ids": ids.astype(np.float64), "features": features},
        "text ids": {"ids": np.array([f" {i}" for i in ids]), "features": features},
        "columns": {"ids": ids, "features": features[:, ::-1]},
    }
    paths = []
    for name, columns in single.items():
        paths.append(folder / f"{name}.npz")
        np.savez(paths[-1], labels=labels, **columns)
    rows = "".join(f"{i},0,{a},{b}\n" for i, (a, b) in zip(ids, features, strict=True))
    for name, mark in (("csv", b""), ("mark", b"\xef\xbb\xbf")):
        paths.append(folder / f"{name}.csv")
        paths[-1].write_bytes(mark + b"id,label,a,b\n" + rows.encode())
    return paths


def test_a_rewritten_file_has_no_second_budget(tmp_path: Path) -> None:
    """6. Reordered, rescaled, in single precision, with a mark, with other types of ids: the same
    records, the same budget."""
    path, name = written(tmp_path, first_feature())
    place = home(tmp_path, name, epsilon_per_record="4.0", epsilon_per_campaign="2.0")
    codes = []
    for number, records in enumerate(rewritten(tmp_path)):
        plan = replace(PLAN, model=name, epsilon=2.0, campaign=f"campaign {number}")
        with Puppet(plan, BitQuery(Bit(epsilon=2.0), 0.0, 1.0, (0.5,))) as puppet:
            puppet.ask(place, records, "--model", path)
        codes += puppet.codes
    assert codes == ["OK", "OK"] + ["ALREADY_SPENT"] * 6
    assert Home(place).ledger().spent_by_record() == (N, 4.0)


def test_a_corrected_label_gets_no_second_draw(tmp_path: Path) -> None:
    """6. A record without an id is refused; with one it is the same whatever its label, so the same
    plan finds it spent."""
    path, name = written(tmp_path, first_feature())
    place, plan = home(tmp_path, name), replace(PLAN, model=name)
    np.savez(tmp_path / "nameless.npz", labels=np.zeros(N, dtype=int), features=crowd(0.9))
    with Puppet(plan, HALF) as puppet:
        assert puppet.ask(place, tmp_path / "nameless.npz", "--model", path) == 2
        assert puppet.answers == []
        assert puppet.ask(place, people(tmp_path / "records.npz", crowd(0.9)), "--model", path) == 0
    labels = np.zeros(N, dtype=np.int64)
    labels[0] = 1
    with Puppet(plan, BitQuery(Bit(epsilon=SURE), 0.0, 1.0, (0.3,)), round_=1) as puppet:
        puppet.ask(place, people(tmp_path / "records.npz", crowd(0.9), labels), "--model", path)
    assert puppet.codes == ["ALREADY_SPENT"]


def test_other_names_for_most_records_are_asked_about(tmp_path: Path) -> None:
    """6. A file under new ids stops with an explanation, and goes on with --new-records, which
    `register` takes too."""
    path, name = written(tmp_path, first_feature())
    place = home(tmp_path, name)
    records = people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(replace(PLAN, model=name), HALF) as puppet:
        assert puppet.ask(place, records, "--model", path) == 0
    np.savez(
        tmp_path / "other.npz",
        ids=np.arange(N) + 1_000,
        labels=np.zeros(N, dtype=int),
        features=crowd(0.9),
    )
    with Puppet(replace(PLAN, model=name, campaign="next"), HALF) as puppet:
        assert puppet.ask(place, tmp_path / "other.npz", "--model", path) == 2
        assert client("register", tmp_path / "other.npz", "--home", place)[0] == 2
        assert puppet.answers == []
        assert client("register", tmp_path / "other.npz", "--home", place, "--new-records")[0] == 0
        assert puppet.ask(place, tmp_path / "other.npz", "--model", path) == 0


@pytest.mark.parametrize(
    "model", [not_a_number, failing, partial(ending, "Div"), partial(ending, "Mod")]
)
@pytest.mark.parametrize("method", ["bits", "labels"])
def test_no_failure_is_an_answer(model: Any, method: str, tmp_path: Path) -> None:
    """7. A model that fails, yields no number or ends its process on a property of a record: the
    answer is OK all the same."""
    path, name = written(tmp_path, model())
    plan: Plan = replace(PLAN, model=name)
    query: Any = HALF
    if method == "labels":
        plan = replace(plan, method="labels", channel="k-rr")
        query = LabelQuery(plan.label_channel())
    codes = []
    for number, first in enumerate((0.9, 0.1)):
        place = home(
            tmp_path / str(number), name, methods='["bits", "labels"]', features_may_leave="true"
        )
        with Puppet(plan, query) as puppet:
            puppet.ask(place, people(tmp_path / f"{number}.npz", crowd(first)), "--model", path)
        codes += puppet.codes
    assert codes == ["OK", "OK"]


@pytest.mark.parametrize("label", [7, -3])
@pytest.mark.parametrize("method", ["bits", "labels"])
def test_a_label_beyond_the_plan_is_not_told(label: int, method: str, tmp_path: Path) -> None:
    """7. The plan's author chooses the number of labels: a record that has none of them answers
    like the others."""
    path, name = written(tmp_path, first_feature())
    place = home(tmp_path, name, methods='["bits", "labels"]', features_may_leave="true")
    labels = np.zeros(N, dtype=np.int64)
    labels[0] = label
    plan, query = replace(PLAN, model=name), HALF
    if method == "labels":
        plan = replace(plan, method="labels", channel="k-rr")
    asked: Any = query if method == "bits" else LabelQuery(plan.label_channel())
    with Puppet(plan, asked) as puppet:
        puppet.ask(place, people(tmp_path / "records.npz", crowd(0.3), labels), "--model", path)
    assert puppet.codes == ["OK"]


def test_who_has_the_secret_cannot_strip_the_noise(tmp_path: Path) -> None:
    """8. Two folders with the same secret, records and question: the weights that leave differ, by
    noise and nothing else."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    assert client("backup", tmp_path / "backup", "--home", place)[0] == 0
    assert client("restore", tmp_path / "backup", "--home", tmp_path / "stolen", "--yes")[0] == 0
    sent = []
    for folder in (place, tmp_path / "stolen"):
        with Puppet(TRAINING, TrainingQuery(first_weights(STEPS))) as puppet:
            assert puppet.ask(folder, records) == 0
        sent.append(puppet.answers[0].batch.weights)
    assert len(sent[0]) == len(sent[1]) == 4 * STEPS.size
    assert sent[0] != sent[1]


def test_a_new_secret_is_not_written_beside_an_old_ledger(tmp_path: Path) -> None:
    """9. `init` stops where the secret is gone; with another secret in its place everything
    stops."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINING, TrainingQuery(first_weights(STEPS))) as puppet:
        assert puppet.ask(place, records) == 0
    secret = place / "secret.key"
    kept = secret.read_bytes()
    secret.unlink()
    assert client("init", "--home", place)[0] == 2
    assert not secret.exists()
    secret.write_bytes(bytes(32))
    with Puppet(replace(TRAINING, campaign="next"), TrainingQuery(first_weights(STEPS))) as puppet:
        assert puppet.ask(place, records) == 2
        assert client("status", "--home", place)[0] == 2
    assert puppet.answers == []
    secret.write_bytes(kept)
    assert client("status", "--home", place)[0] == 0


def test_a_killed_client_leaves_its_spends_in_the_one_file(tmp_path: Path) -> None:
    """9. Killed with signal 9 while its answer is under way: a copy of `ledger.sqlite` alone knows
    what left."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINING, TrainingQuery(first_weights(STEPS))) as puppet:
        command = [sys.executable, "-m", "confide.client.cli", *puppet.options(place, records)]
        process = subprocess.Popen(command, cwd=ROOT)
        puppet.on_submit = lambda: os.kill(process.pid, signal.SIGKILL)
        assert process.wait(timeout=120) == -9
    assert puppet.codes == ["OK"]
    shutil.copy(place / "ledger.sqlite", tmp_path / "copy.sqlite")
    assert Ledger(tmp_path / "copy.sqlite").spent_by_record() == (N, 4.0)


def test_a_plan_is_that_of_the_campaign_named(tmp_path: Path) -> None:
    """10. Asked for one campaign, the aggregator sends the plan of another: nothing is answered."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINING, TrainingQuery(first_weights(STEPS))) as puppet:
        puppet.signed = sign_plan(replace(TRAINING, campaign="another"), KEY)
        assert puppet.ask(place, records) == 1
    assert puppet.answers == []


def test_answers_drawn_before_the_policy_was_tightened_stay(tmp_path: Path) -> None:
    """10. Drawn, not delivered, and then forbidden: the next run sends nothing; allowed again, it
    sends the same bytes."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    policy = (place / "policy.toml").read_text()
    with Puppet(TRAINING, TrainingQuery(first_weights(STEPS)), receipt="UNAVAILABLE") as puppet:
        assert puppet.ask(place, records) == 1
        (place / "policy.toml").write_text(
            policy.replace("epsilon_per_campaign = 20.0", "epsilon_per_campaign = 1.0")
        )
        puppet.receipt = "OK"
        assert puppet.ask(place, records) == 1
        assert puppet.codes == ["OK", "EPSILON_PER_CAMPAIGN"]
        (place / "policy.toml").write_text(policy)
        assert puppet.ask(place, records) == 0
    assert puppet.answers[2] == puppet.answers[0]


def test_the_same_name_signed_again_is_the_same_campaign(tmp_path: Path) -> None:
    """10. A second plan of the same name and key finds the campaign's epsilon spent."""
    place = home(tmp_path, **LEARNS, epsilon_per_campaign="4.0")
    records, codes = people(tmp_path / "records.npz", crowd(0.9)), []
    for alpha in (0.1, 0.2):
        with Puppet(replace(TRAINING, alpha=alpha), TrainingQuery(first_weights(STEPS))) as puppet:
            puppet.ask(place, records)
        codes += puppet.codes
    assert codes == ["OK", "ALREADY_SPENT"]


def test_few_records_do_not_train(tmp_path: Path) -> None:
    """10. The policy's smallest group holds for training as for everything else; the number of
    records is public."""
    place = home(tmp_path, **LEARNS, minimum_group=str(N + 1))
    with Puppet(TRAINING, TrainingQuery(first_weights(STEPS))) as puppet:
        puppet.ask(place, people(tmp_path / "records.npz", crowd(0.9)))
    assert puppet.codes == ["GROUP_TOO_SMALL"]


@pytest.mark.parametrize("plan", [TRAINING, PLAN])
def test_odds_are_those_of_replacing_a_record(plan: Plan, tmp_path: Path) -> None:
    """10. What is explained is what is charged: epsilon in replace-one, as odds."""
    place = home(tmp_path, **LEARNS)
    (tmp_path / "plan.bin").write_bytes(sign_plan(plan, KEY))
    shown = client("explain", tmp_path / "plan.bin", "--home", place)[1]
    assert "replace-one" in shown
    assert ("98.3 : 1.7" if plan is TRAINING else "99.9999998 : 0.0000002") in shown


def test_no_plan_takes_long_to_check(tmp_path: Path) -> None:
    """11. The longest training with the least noise is decided at once: one such check took 284
    seconds (here 60 at most)."""
    extreme = {
        "noise_multiplier": 0.2,
        "sampling_rate": 0.5,
        "rounds": 1 << 11,
        "local_steps": 1 << 9,
    }
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINING, TrainingQuery(first_weights(STEPS))) as puppet:
        puppet.signed = raw(TRAINING, **extreme)
        puppet.campaign = digest(wire.SignedPlan.FromString(puppet.signed).plan).hex()[:16]
        command = [sys.executable, "-m", "confide.client.cli", *puppet.options(place, records)]
        assert (
            subprocess.run(
                command, cwd=ROOT, timeout=60, check=False, capture_output=True
            ).returncode
            == 1
        )
    assert puppet.answers == []


def test_what_probabilities_may_say_is_said(tmp_path: Path) -> None:
    """12. `explain` tells the owner that a model's probabilities may be the features in other
    words."""
    place = home(tmp_path, methods='["labels"]', features_may_leave="true")
    (tmp_path / "plan.bin").write_bytes(
        sign_plan(replace(PLAN, method="labels", channel="k-rr"), KEY)
    )
    assert (
        "may spell out the features" in client("explain", tmp_path / "plan.bin", "--home", place)[1]
    )


def test_a_person_answers_once_whatever_records_it_has(tmp_path: Path) -> None:
    """A campaign draws one record of each person and charges the person: for new records later, and
    without the column, too."""
    path, name = written(tmp_path, first_feature())
    place, persons = home(tmp_path, name), np.arange(N) % 50
    columns: Any = {
        "labels": np.zeros(N, dtype=int),
        "features": np.random.default_rng(1).random((N, 2)),
        "person": persons,
    }
    np.savez(tmp_path / "records.npz", ids=np.arange(N), **columns)
    with Puppet(replace(PLAN, model=name), HALF) as puppet:
        assert puppet.ask(place, tmp_path / "records.npz", "--model", path) == 0
    assert len(puppet.answers[0].batch.ids) == 50 * 16
    assert Home(place).ledger().spent_by_record() == (50, SURE)
    np.savez(tmp_path / "later.npz", ids=np.arange(N) + N, **columns)
    with Puppet(replace(PLAN, model=name, campaign="next"), HALF) as puppet:
        assert puppet.ask(place, tmp_path / "later.npz", "--model", path) == 2
        puppet.ask(place, tmp_path / "later.npz", "--model", path, "--new-records")
        assert puppet.codes == ["ALREADY_SPENT"]
    del columns["person"]
    np.savez(tmp_path / "column.npz", ids=np.arange(N), **columns)
    with Puppet(replace(PLAN, model=name, campaign="without the column"), HALF) as puppet:
        puppet.ask(place, tmp_path / "column.npz", "--model", path)
    assert puppet.codes == ["ALREADY_SPENT"]


def test_allowing_shows_what_is_allowed_and_asks(tmp_path: Path) -> None:
    """`allow` shows the key or digest, changes nothing without a yes, and keeps the policy's
    comments."""
    place = Home(tmp_path / "home")
    place.create()
    before = place.policy_file.read_text()
    path, name = written(tmp_path, first_feature())
    code, shown = client("allow", "aggregator", PUBLIC.hex(), "--home", place.folder)
    assert (code, PUBLIC.hex() in shown, place.policy_file.read_text() == before) == (1, True, True)
    assert client("allow", "aggregator", PUBLIC.hex(), "--home", place.folder, "--yes")[0] == 0
    assert client("allow", "model", path, "--vetted", "--home", place.folder, "--yes")[0] == 0
    assert client("allow", "model", "ff" * 32, "--home", place.folder, "--yes")[0] == 0
    assert client("allow", "model", "nothing", "--home", place.folder, "--yes")[0] == 2
    policy = place.policy()
    assert policy.aggregators == {PUBLIC}
    assert policy.models == {name, b"\xff" * 32}
    assert policy.vetted_models == {name}
    assert [line for line in before.splitlines() if line.startswith("#")] == [
        line for line in place.policy_file.read_text().splitlines() if line.startswith("#")
    ]


def test_a_backup_travels_by_command(tmp_path: Path) -> None:
    """`restore` into an empty folder brings every spend; into a ledger that knows more than the
    backup it takes none away."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    assert client("backup", tmp_path / "early", "--home", place)[0] == 0
    with Puppet(TRAINING, TrainingQuery(first_weights(STEPS))) as puppet:
        assert puppet.ask(place, records) == 0
    assert client("backup", tmp_path / "late", "--home", place)[0] == 0
    assert client("restore", tmp_path / "early", "--home", place, "--yes")[0] == 0
    assert Home(place).ledger().spent_by_record() == (N, 4.0)
    code, shown = client("restore", tmp_path / "late", "--home", tmp_path / "new", "--yes")
    assert (code, datetime.now(UTC).strftime("%Y-%m-%d") in shown) == (0, True)
    assert Home(tmp_path / "new").ledger().spent_by_record() == (N, 4.0)
