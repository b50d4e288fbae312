"""Schedules of collectives: what a legal one is, and (later) how to find a good one."""
