"""Heap packing: offsets for live intervals, such that intervals that overlap in time do not overlap in memory."""
