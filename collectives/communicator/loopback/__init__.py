"""Collectives among devices of one process."""
