"""The two sides of a chain as processes: `confide-aggregator chain`, and owners who contribute."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.keys import SIGNING_KEY
from confide.client.policy_template import TEMPLATE
from confide.protocol.cards.card import Card, read_card
from tests.support.owners.owners import PUBLIC
from tests.support.repository.places import ROOT
from tests.support.servers.servers import Place, Running, aggregator, client, eventually, together

POLICY = {
    "epsilon_per_record": "12.0",
    "epsilon_per_campaign": "4.0",
    "methods": '["bits", "central", "full-data", "training"]',
    "exact_counts_may_leave": "true",
    "trained_models": "true",
    "aggregators": f'["{PUBLIC.hex()}"]',
}
SECONDS = 600
# Owners on one machine share its cores.
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}


class Contributor:
    """A data owner's folder, records and token, behind `confide-client` as a process."""

    def __init__(self, folder: Path, place: Place, records: Path, **policy: str) -> None:
        self.home, self.records, self.token = folder / "home", records, folder / "token"
        assert client("init", "--home", self.home)[0] == 0
        lines = TEMPLATE.splitlines()
        for name, value in (POLICY | policy).items():
            lines = [
                f"{name} = {value}" if line.startswith(f"{name} =") else line for line in lines
            ]
        (self.home / "policy.toml").write_text("\n".join(lines) + "\n")
        added = aggregator("owner", "add", f"owner {folder.name}", "--db", place.url)
        self.token.write_text(added[1])

    def contribute(
        self, server: Running, campaign: str, **options: str
    ) -> subprocess.CompletedProcess[str]:
        """Take part in a campaign; `options` are those of the command, such as its engine."""
        command = [sys.executable, "-m", "confide.client", *self.words(server, campaign, **options)]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, env=ONE_THREAD
        )

    def words(self, server: Running, campaign: str, **options: str) -> list[str]:
        """The words of the command."""
        given = {
            "--aggregator": f"127.0.0.1:{server.port}",
            "--ca": server.place.keys / "ca.pem",
            "--campaign": campaign,
            "--token-file": self.token,
            "--records": self.records,
            "--home": self.home,
        } | {f"--{name}": value for name, value in options.items()}
        return ["contribute", *(str(word) for pair in given.items() for word in pair)]


def opened(place: Place, settings: dict[str, Any]) -> str:
    """Create a campaign by command, from its options, and open it."""
    asked = settings | {"--key": place.keys / SIGNING_KEY, "--db": place.url}
    code, said = aggregator(
        "campaign", "create", *(word for pair in asked.items() for word in pair)
    )
    assert code == 0, said
    campaign = said.strip()
    assert aggregator("campaign", "open", campaign, "--db", place.url)[0] == 0
    eventually(lambda: place.store.rounds(campaign))
    return campaign


def published(server: Running, owners: list[Contributor], settings: dict[str, Any]) -> Card:
    """Run a campaign by commands, from its options to the card that an owner fetches."""
    place, campaign = server.place, opened(server.place, settings)
    for done in together(len(owners), lambda one: owners[one].contribute(server, campaign)):
        assert done.returncode == 0, done.stderr
    assert aggregator("campaign", "publish", campaign, "--db", place.url)[0] == 0
    file = place.folder / f"{campaign}.json"
    at = ("--aggregator", f"127.0.0.1:{server.port}", "--ca", place.keys / "ca.pem")
    mine = ("--token-file", owners[0].token, "--home", owners[0].home, "--out", file)
    # The server notices a publication a moment later.
    eventually(lambda: client("card", *at, "--campaign", campaign, *mine)[0] == 0, what=campaign)
    return read_card(file)


class Owner(Contributor):
    """A data owner with features and labels."""

    def __init__(
        self,
        folder: Path,
        place: Place,
        features: NDArray[Any],
        labels: NDArray[Any],
        policy: dict[str, str] | None = None,
    ) -> None:
        folder.mkdir()
        records = folder / "records.npz"
        np.savez(records, features=features, label=labels, id=np.arange(len(labels)))
        super().__init__(folder, place, records, **policy or {})


class Operator:
    """`confide-aggregator chain` as a process."""

    def __init__(self, place: Place, folder: Path, chain: str) -> None:
        self.place, self.out, self.file = place, folder / "out", folder / "chain.toml"
        self.file.write_text(chain)
        self.log = folder / "chain.log"

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "confide.aggregator", *self.words(*options)]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    @contextmanager
    def running(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """The process, which ends with the block."""
        process = self.start(*options)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def words(self, *options: str) -> list[str]:
        """The words of the command."""
        given = ("--out", self.out, "--key", self.place.keys / SIGNING_KEY, "--db", self.place.url)
        return ["chain", *(str(word) for word in (self.file, *given, *options))]

    def campaign(self, title: str) -> str:
        """The id of the campaign of this title, once it takes answers."""

        def found() -> str:
            return next(
                (
                    one.id
                    for one in self.place.store.campaigns()
                    if one.plan.campaign == title and self.place.store.rounds(one.id)
                ),
                "",
            )

        return eventually(found, seconds=SECONDS, what=title)
