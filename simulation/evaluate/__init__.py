"""What a method would cost on one's own records: repeated trials and their reports."""
