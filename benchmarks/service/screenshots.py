"""The pictures of the pages in docs/: a real server, owners, a federation, and a real browser.

Run with the project's environment and Chromium: `python benchmarks/service/screenshots.py [--out
docs]`.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from confide.protocol.exact.sampling import os_entropy
from tests.support.owners.hostile import Wire
from tests.support.owners.owners import PLAN, changed, owner
from tests.support.servers.browser import browser
from tests.support.servers.servers import Place, contribution, eventually, page_port, together

OWNERS = ("Hospital North", "Hospital South", "Lakeside Clinic", "St. Anne's", "University Clinic")
N = 4_000


def shoot(
    chromium: Any,
    url: str,
    path: Path,
    *,
    width: int,
    height: int,
    dark: bool = False,
    whole: bool = False,
) -> None:
    """Write the picture of a page as a window shows it, or the whole page, however high."""
    context = chromium.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    page.goto(url)
    page.wait_for_timeout(1500)
    page.screenshot(path=path, full_page=whole)
    context.close()
    print(f"wrote {path}")


def federation(folder: Path) -> str:
    """The address of the report of a federation of twelve owners."""
    command = [sys.executable, "-m", "confide", "federation", "--nodes", "12", "--seed", "1"]
    subprocess.run([*command, "--out", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return (folder / "report.html").as_uri()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs"))
    given = parser.parse_args()
    today = datetime.now(UTC).replace(microsecond=0)
    plan = changed(
        PLAN,
        campaign="Triage model, autumn",
        issued=today,
        expires=today + timedelta(days=30),
        expected_records=N * len(OWNERS),
    )
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        report = federation(Path(folder) / "federation")
        shoot(chromium, report, given.out / "page-report.png", width=880, height=1230)
        place = Place(Path(folder) / "aggregator")
        try:
            campaign = place.campaign(plan, owners=len(OWNERS))
            tokens = [place.enrol(name) for name in OWNERS]
            server = place.serve("--http", "0")
            eventually(lambda: place.store.rounds(campaign))
            time.sleep(0.5)
            Wire(server, campaign, tokens[0]).submit(b"\xff\x01 not an answer")

            def part(i: int) -> Any:
                home = Path(folder) / str(i)
                # Unseeded, as owners are: seeded answers make the card a simulation's.
                respondent = owner(
                    home, seed=i, n=N, entropy=os_entropy, now=lambda: datetime.now(UTC)
                )
                access = server.access(tokens[i])
                return contribution(access, plan, home, seed=i, n=N, respondent=respondent)

            for number in range(4):
                eventually(lambda number=number: len(place.store.rounds(campaign)) > number)
                time.sleep(0.5)
                together(len(OWNERS) - (number == 3), lambda i: part(i).once())
            url = f"http://127.0.0.1:{page_port(server)}/campaigns/{campaign}"
            shoot(chromium, url, given.out / "page-campaign.png", width=880, height=1000)
            together(len(OWNERS), lambda i: part(i).watch())
            eventually(lambda: place.store.campaign(campaign).state == "calibrated")
            shoot(chromium, url, given.out / "page-phone.png", width=390, height=844, dark=True)
            card = given.out / "page-card.png"
            shoot(chromium, f"{url}/card", card, width=880, height=900, whole=True)
            phone = given.out / "page-card-phone.png"
            shoot(chromium, f"{url}/card", phone, width=390, height=844, whole=True)
        finally:
            place.close()


if __name__ == "__main__":
    main()
