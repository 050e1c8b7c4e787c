"""Train and calibrate by the commands that operators and owners type, over a real gRPC server.

Run `python benchmarks/federations/chain.py [--data FILE] [--owners 5] [--train-share 0.45]
[--engine hooks] [--json FILE] [--markdown]`. FILE is an npz archive of features (n, d) in [0, 1]
and labels (n,) from 0, or of x_train, y_train, x_test and y_test, which are put together; records
whose d is a square are images. Without it the records are the embedded letters. 1,500 records are
for testing, and the others are dealt to the owners.

A server (`confide-aggregator serve`), the operator (`confide-aggregator chain`) and every owner
(`confide-client contribute`, once a campaign) are processes of their own, with TLS between them.
Owners train a convolutional network on a share of their records at epsilon 4, and calibrate it at
epsilon 1 on the rest: by counts for a trusted aggregator, by counts that they noise, and by bits;
and on the records that trained, by the full-data methods. With `--train-share 1` all records train,
and only the latter follow. Every card is verified; accuracy, coverage and set sizes are measured on
the test records with the model file that the operator gets. Two rows are for comparison: all
records with one owner, and no privacy. Every calibration is repeated 100 times in process with the
trained model, for its mean coverage. It takes a few minutes on two cores. Exit status 1 if a card
does not verify.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.federations.chain_commands import (
    Chain,
    calibrations,
    chain_file,
    say,
    shared_settings,
)
from benchmarks.federations.chain_rows import Dealt, Ran, run
from tests.support.owners.owners import PUBLIC


def over_grpc(dealt: Dealt, folder: Path, engine: str) -> Ran:
    """Train and calibrate by the commands of both sides."""
    terms = dealt.terms
    text = chain_file(dealt.data, shared_settings(terms, **dealt.expected))
    say(f"{dealt.expected['records']} records, {len(dealt.shares)} owners, {terms.size} weights")
    campaigns = calibrations(dealt.train_share)
    chain = Chain(folder, text, dealt.shares, engine=engine)
    chain.run(campaigns)
    return Ran(
        settings=text,
        model=chain.model,
        cards={name: chain.card(name) for name in campaigns},
        key=PUBLIC,
        split=chain.split(dealt.shares, dealt.test),
        gradients=chain.said,
    )


if __name__ == "__main__":
    run(__doc__, over_grpc)
