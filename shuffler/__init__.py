"""The shuffler's side: mixes the sealed reports of owners, and hands over whole rounds."""
