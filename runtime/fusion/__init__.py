"""Fusions: the computation of a kernel of several instructions, and the emitter that generates its code."""
