"""The database: tables, transactions, and read-only views of campaigns."""
