"""Buffer assignment: from a scheduled module to slices of allocations, with an independent checker."""
