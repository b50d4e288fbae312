"""Convolutions: one file for each algorithm, and the parts that the algorithms share."""
