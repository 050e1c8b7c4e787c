"""The pages as HTML, rendered from the store.

The part of a page that changes while a campaign runs can be rendered alone.
"""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from confide.aggregator.storage import views
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import CALIBRATED, PUBLISHED, TRAINED
from confide.aggregator.storage.training_progress import error_rates
from confide.aggregator.web.drawing import search_picture
from confide.aggregator.web.search_progress import (
    DOUBT,
    alarm,
    asked_of,
    bracket,
    departure,
    points,
)
from confide.aggregator.web.words import MEANINGS
from confide.protocol.cards.card import PUBLIC, Card, parse_card, strata_of
from confide.protocol.cards.page import as_html, card_article
from confide.protocol.cards.picture import card_picture
from confide.protocol.cards.scatter import scatter
from confide.protocol.cards.tracks.registry import track_of
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.verify.findings import Finding
from confide.protocol.cards.words.in_words import verdict
from confide.protocol.certificate import WATCH

# A table longer than this is cut, and says so.
MOST_ROWS = 200


@dataclass(frozen=True)
class VerifiedCard:
    """A card, what verifying it found, and the threshold it vouches for."""

    card: Card
    findings: list[Finding]

    @property
    def failures(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.holds]

    @property
    def threshold(self) -> float:
        return float(self.card.formal["released"]["threshold"])

    @property
    def promises(self) -> bool:
        """Whether the card is about a promise of coverage; that of a monitor is not."""
        return bool(self.card.formal["contract"]["kind"] != WATCH)

    @property
    def strata(self) -> dict[str, Any] | None:
        """The parts of the records that have a threshold each; None if there are none."""
        found: dict[str, Any] | None = self.card.formal["released"].get("strata")
        return found

    @property
    def parts(self) -> list[dict[str, Any]]:
        """Those parts one by one, with the reason of each threshold of 1."""
        found = strata_of(self.card.formal)
        return [] if found is None else list(found["parts"])

    @property
    def level(self) -> float:
        """The guaranteed coverage; 0 if there is no guarantee."""
        return float(track_of(self.card.formal).level(self.card.formal) or 0.0)


@lru_cache(maxsize=1024)
def check(text: str, key: bytes) -> VerifiedCard:
    """A stored card never changes, so it is verified once."""
    card = parse_card(text)
    return VerifiedCard(card, verify(card, key=key))


class Pages:
    """All pages. Cards must be signed by this key."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._store, self._key = store, key
        self._templates = Environment(
            loader=PackageLoader("confide.aggregator.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {"moment": _moment, "count": lambda value: f"{value:,}"}
        self._templates.globals["meanings"] = MEANINGS

    def index(self, *, whole: bool) -> str:
        """All campaigns, the newest first; not `whole`: only the part that changes."""
        found, others = views.overviews(self._store.engine)
        rows: list[dict[str, Any]] = [
            {
                "one": one,
                "rounds": views.rounds(self._store.engine, one),
                "checked": self.checked(one),
            }
            for one in reversed(found)
        ]
        known = [
            (row["one"].plan.epsilon, row["checked"].level, not row["checked"].failures)
            for row in rows
            if row["checked"] and row["checked"].promises
        ]
        promised = max((level for _, level, _ in known), default=0.0)
        trade_off = (
            scatter(known, line=promised, x="epsilon a record", y="guaranteed coverage")
            if len(known) > 1
            else ""
        )
        refused = sorted(views.rejected(self._store.engine, "").items())
        given = {"rows": rows, "trade_off": Markup(trade_off), "refused": refused, "others": others}
        return self._templates.get_template("index.html" if whole else "index_live.html").render(
            given
        )

    def campaign(self, one: views.Overview, *, whole: bool) -> str:
        """One campaign; not `whole`: only the part that changes."""
        engine, plan, checked = self._store.engine, one.plan, self.checked(one)
        rounds, found = views.rounds(engine, one), asked_of(self._store, one.id)
        asked = points(*found)
        owners, all_owners = views.senders(engine, one, last=len(rounds) - 1, most=MOST_ROWS)
        threshold = None if checked is None else checked.threshold
        picture = search_picture(asked, level=1 - plan.alpha, threshold=threshold)
        if not asked and checked is not None:
            picture = Markup(card_picture(checked.card.formal, checked.card.diagnostic))
        given: dict[str, Any] = {
            "one": one,
            "plan": plan,
            "rounds": rounds,
            "owners": owners,
            "all_owners": all_owners,
            "most": MOST_ROWS,
            "rejected": sorted(views.rejected(engine, one.id).items()),
            "points": asked,
            "picture": picture,
            "level": 1 - plan.alpha,
            "bracket": bracket(asked),
            "doubt": DOUBT,
            "odds": math.exp(plan.epsilon),
            "checked": checked,
            "reports": sum(row.reports for row in rounds),
            "headline": None if checked is None else verdict(checked.card, checked.findings),
            "stored": views.stored_batches(engine, one.id),
            "trained": self._trained(one),
            "alarm": alarm(*found),
            "departure": departure(self._store, one),
            "errors": error_rates(self._store, one.id, plan),
        }
        return self._templates.get_template(
            "campaign.html" if whole else "campaign_live.html"
        ).render(given)

    def _trained(self, one: views.Overview) -> dict[str, Any] | None:
        """What a training cost and rests on, once it has ended."""
        text = self._store.about_training(one.id) if one.state == TRAINED else None
        return None if text is None else dict(json.loads(text))

    def card(self, one: views.Overview) -> str | None:
        """The card of a campaign, verified on this server."""
        checked = self.checked(one)
        if checked is None:
            return None
        article = Markup(card_article(checked.card, checked.findings, own_key=True))
        return self._templates.get_template("card.html").render(
            one=one, article=article, checked=checked
        )

    def card_file(self, one: views.Overview) -> str | None:
        """The card as a self-contained page."""
        checked = self.checked(one)
        return None if checked is None else as_html(checked.card, checked.findings, own_key=True)

    def message(self, title: str, text: str) -> str:
        """A page with a short message."""
        return self._templates.get_template("message.html").render(title=title, text=text)

    def checked(self, one: views.Overview) -> VerifiedCard | None:
        if one.state not in (CALIBRATED, PUBLISHED):
            return None
        text = self._store.card(one.id, PUBLIC)
        return None if text is None else check(text, self._key)


def _moment(seconds: float | None) -> Markup:
    if seconds is None:
        return Markup("-")
    at = datetime.fromtimestamp(seconds, UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        at.isoformat(timespec="seconds"), f"{at:%Y-%m-%d %H:%M:%S} UTC"
    )
