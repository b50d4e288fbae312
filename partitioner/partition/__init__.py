"""Partitioning of one op at a time, after propagation has fixed the shardings."""
