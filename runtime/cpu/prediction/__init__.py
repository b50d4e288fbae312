"""Prediction of the step time of a compiled program on a described machine: a sum over its thunks."""
