"""The pages of the documents, as tests read them."""

from tests.support.repository.places import ROOT


def says(page: str, words: str) -> bool:
    """Whether a page holds these words, wherever its lines break."""
    return words in " ".join((ROOT / "docs" / page).read_text().split())
