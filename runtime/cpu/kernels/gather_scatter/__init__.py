"""Gathers and scatters: records bound to memory, and their LLVM IR."""
