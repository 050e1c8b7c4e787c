"""Files of records: their columns, and tables read from csv, parquet and npz."""
