"""Partitioning of one op at a time, once shardings are known."""
