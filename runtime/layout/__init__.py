"""Layout assignment: which order of dimensions each array is written in, before a per-device program is scheduled."""
