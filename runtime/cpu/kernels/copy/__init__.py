"""Copies, slices, concatenations and pads: the records bound to memory, and their LLVM IR."""
