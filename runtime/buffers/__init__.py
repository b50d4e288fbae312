"""Buffer assignment: places the values of a scheduled module in slices of allocations; an independent checker."""
