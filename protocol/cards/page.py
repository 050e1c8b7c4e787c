"""Readable forms of a card: Markdown for reviews, and one self-contained HTML file with plots.

Both open with the verdict and what it means; the fields follow, folded on the page.
"""

import html

from confide.protocol.cards.card import Card
from confide.protocol.cards.fields import Rows
from confide.protocol.cards.picture import card_picture
from confide.protocol.cards.sections import sections
from confide.protocol.cards.verify.findings import Finding
from confide.protocol.cards.words.in_words import InWords, campaign_name, in_words, verdict
from confide.protocol.cards.words.signer_words import KEY_IS
from confide.protocol.commands.terminal import printable

# A section of more rows is folded by itself.
LONG = 24

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 0 0 1.5rem; width: 100%; }
th, td { padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ccc; text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }
th { width: 14rem; font-weight: 500; }
.box { border: 3px solid #17693a; border-radius: .5rem; padding: 1rem 1.2rem; margin: 0 0 1.5rem; }
.box.bad { border-color: #a00; }
.status { font-size: 1.7rem; font-weight: 700; letter-spacing: .03em; margin: 0; color: #17693a; }
.bad .status { color: #a00; }
.box dt { font-weight: 600; margin-top: .6rem; }
.box dd { margin: 0; }
summary { font-size: 1.15rem; font-weight: 600; cursor: pointer; margin: 1rem 0; }
figure { margin: 0 0 1.5rem; }
figcaption { color: #555; }
svg { width: 100%; max-width: 40rem; height: auto; }
code { overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  th, td { display: block; width: auto; border: 0; padding: .1rem 0; }
  tr { display: block; border-bottom: 1px solid #ccc; padding: .4rem 0; }
}
@media print {
  body { margin: 0; font-size: 11pt; }
  details::details-content { content-visibility: visible; height: auto; }
  details > *, table, figure, .box { break-inside: avoid; }
  h2, summary { break-after: avoid; }
}
"""


def as_markdown(card: Card, findings: list[Finding]) -> str:
    """Render the card as headings and tables, the verdict first."""
    words = in_words(card, findings)
    parts = [
        f"# {_escape(words.title)}",
        "",
        f"Campaign or contract: {_escape(campaign_name(card))}",
        "",
        f"**{_escape(verdict(card, findings))}**",
        "",
        *(f"- **{name}**: {_escape(text)}" for name, text in words.rows),
        *([f"- **Use it**: `{words.use}`{_key(words, '. {}')}"] if words.use else []),
        "- **Not promised**:",
        *(f"    - {_escape(text)}" for text in words.not_promised),
        "",
    ]
    for heading, rows in sections(card, findings):
        parts += [
            f"## {heading}",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {_escape(value)} |" for name, value in rows),
            "",
        ]
    return "\n".join(parts)


def as_html(card: Card, findings: list[Finding], *, own_key: bool = False) -> str:
    """Render the card as one self-contained page; for `own_key` see `in_words`."""
    words = in_words(card, findings)
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(words.title)}: {html.escape(campaign_name(card))}</title>"
        f"<style>{STYLE}</style>{card_article(card, findings, own_key=own_key)}</html>\n"
    )


def card_article(card: Card, findings: list[Finding], *, own_key: bool = False) -> str:
    """Render the card as part of a page, the verdict first; every value is escaped."""
    words = in_words(card, findings, own_key=own_key)
    body = "".join(_table(heading, rows) for heading, rows in sections(card, findings))
    name = html.escape(campaign_name(card))
    return (
        f'<h1>{html.escape(words.title)}</h1><p class="quiet">{name}</p>{_box(words)}'
        f"{card_picture(card.formal, card.diagnostic)}"
        f"<details><summary>All fields, as they were verified</summary>{body}</details>"
    )


def _table(heading: str, rows: Rows) -> str:
    """A section as a table; one that is long, such as all thresholds tested, is folded itself."""
    shown = "".join(
        f'<tr><th scope="row">{html.escape(row)}</th><td>{html.escape(value)}</td></tr>'
        for row, value in rows
    )
    title, table = html.escape(heading), f"<table>{shown}</table>"
    if len(rows) > LONG:
        return f"<details><summary>{title} ({len(rows)})</summary>{table}</details>"
    return f"<h2>{title}</h2>{table}"


def _box(words: InWords) -> str:
    """The part of the page that everybody reads."""
    rows = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in words.rows
    )
    code = f"<code>{html.escape(words.use)}</code>{_key(words, '<br>{}.')}"
    use = f"<dt>Use it</dt><dd>{code}</dd>" if words.use else ""
    unsaid = "".join(f"<li>{html.escape(text)}</li>" for text in words.not_promised)
    return (
        f'<section class="box{"" if words.good else " bad"}" aria-label="Verdict">'
        f'<p class="status">{html.escape(words.status)}</p>'
        f'<p class="decision">{html.escape(words.sentence)}</p>'
        f"<dl>{rows}{use}<dt>Not promised</dt><dd><ul>{unsaid}</ul></dd></dl></section>"
    )


def _key(words: InWords, form: str) -> str:
    """Say what KEY is, where the code that predicts needs one."""
    return form.format(html.escape(KEY_IS, quote=False)) if "KEY" in words.use else ""


def _escape(text: str) -> str:
    """Escape characters with a meaning in Markdown, HTML or terminals."""
    return html.escape(printable(text), quote=False).replace("|", "\\|")
