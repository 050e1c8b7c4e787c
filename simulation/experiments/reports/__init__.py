"""What experiments found: tables, pictures and a page."""
