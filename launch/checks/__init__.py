"""Checks of results: comparison with expected outputs and with the reference, and the op that differs first."""
