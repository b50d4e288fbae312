"""Pure functions of a machine's rates and of shapes: seconds of an element, slowdown of strides.

They stand between ``spmd.machine``, which has the rates, and those that add costs up and decide by them.
"""
