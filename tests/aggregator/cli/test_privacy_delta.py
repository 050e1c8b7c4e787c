"""A pure mechanism has no privacy-delta: what the plan would drop in silence is refused."""

from typer.testing import CliRunner

from confide.aggregator.cli.server import app
from confide.aggregator.keys import SIGNING_KEY
from tests.support.servers.servers import Place

COMPLAINT = "error: privacy-delta is 1e-05, and the mechanism is pure"
NEEDED = (
    *("--campaign", "central:trusted", "--labels", "5"),
    *("--model", "00" * 32, "--records", "2000"),
)


def test_a_campaign_with_a_privacy_delta_that_nothing_spends_is_not_made(place: Place) -> None:
    """One that its mechanism has is accepted, and so is none."""

    def create(*more: str) -> tuple[int, str]:
        where = ["--key", str(place.keys / SIGNING_KEY), "--db", place.url]
        result = CliRunner().invoke(app, ["campaign", "create", *where, *NEEDED, *more])
        return result.exit_code, result.stderr

    code, complaint = create("--privacy-delta", "1e-5")
    assert (code, complaint.count("\n")) == (2, 1)
    assert complaint.startswith(COMPLAINT)
    assert place.store.campaigns() == []
    assert create("--privacy-delta", "0")[0] == 0
    assert create("--privacy-delta", "1e-5", "--mechanism", "gaussian-search")[0] == 0
