"""Reductions, windows and scans: the records bound to memory, and their LLVM IR."""
