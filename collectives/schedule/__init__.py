"""Schedules of collectives: the definition of a legal one, the latency-hiding search for a good one, and its checker."""
