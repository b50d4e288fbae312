"""Prediction of the step time of a compiled program on a described machine, as a sum over its thunks."""
