"""What a compilation or a run amounts to, as plain data."""
