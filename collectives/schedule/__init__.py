"""Schedules of collectives: definition of a legal one, latency-hiding search for a good one, and their checker."""
