"""Layout assignment: choice of the dimension order of each array of a per-device program, before it is scheduled."""
