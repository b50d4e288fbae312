"""Reports of compilations and runs, as plain data."""
