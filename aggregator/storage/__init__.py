"""The database: tables, transactions, and what is read of campaigns while they run."""
