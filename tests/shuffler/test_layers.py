from tests.support.repository.imports import imports, sources, within

# What a shuffler is built of: the server that owners send to, its storage, and the client that an
# aggregator takes answers from. Nothing that opens a report, reads records or calibrates.
BUILT_OF = (
    "confide.aggregator.campaigns.report_ids",
    "confide.aggregator.campaigns.planning.shuffler_file",
    "confide.aggregator.cli.server",
    "confide.aggregator.cli.server_options",
    "confide.aggregator.cli.stored",
    "confide.aggregator.keys",
    "confide.aggregator.logs",
    "confide.aggregator.process_status",
    "confide.aggregator.server.process",
    "confide.aggregator.server.rounds.stored_batches",
    "confide.aggregator.storage",
    "confide.client.cli.connection",
    "confide.client.transport",
)


def test_a_shuffler_is_built_of_transport_and_storage_only() -> None:
    """It can neither open a report nor read a record: no module of it can reach what does."""
    for path in sources("shuffler"):
        names = {name for name in imports(path) if name.startswith("confide.")}
        of_others = {
            name for name in names if not within("confide", {name}) <= {"protocol", "shuffler"}
        }
        assert {name for name in of_others if not name.startswith(BUILT_OF)} == set(), path
        assert not any("seal" in name for name in names), path
