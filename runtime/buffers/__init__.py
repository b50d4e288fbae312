"""Buffer assignment: maps the values of a scheduled module to slices of allocations, and checks the result."""
