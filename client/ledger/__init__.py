"""The owner's ledger: what every record has spent, and the answers that were drawn for it."""
