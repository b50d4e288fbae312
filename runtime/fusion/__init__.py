"""Fusions: the computation of a kernel of several instructions, and the choice of the emitter that generates its code.
"""
