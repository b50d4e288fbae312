"""Layout assignment: chooses the dimension order of each array before a per-device program is scheduled."""
