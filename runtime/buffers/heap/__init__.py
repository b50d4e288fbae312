"""Heap packing: offsets for live intervals, so that those which overlap in time do not overlap in memory."""
