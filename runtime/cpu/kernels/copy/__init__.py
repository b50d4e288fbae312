"""Copies, slices, concatenations and pads: records bound to memory, and their LLVM IR."""
