"""Collectives among the ranks of one node, through shared memory."""
