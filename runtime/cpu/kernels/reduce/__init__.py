"""Reductions, windows and scans: records bound to memory, and their LLVM IR."""
