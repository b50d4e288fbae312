"""Loops over elements: records bound to memory, and their LLVM IR."""
