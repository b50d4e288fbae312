"""Resharding: the cheapest steps from one state of a value to another, found by search."""
