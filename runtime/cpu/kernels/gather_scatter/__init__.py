"""Gathers and scatters: the records bound to memory, and their LLVM IR."""
