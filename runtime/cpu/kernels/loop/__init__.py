"""Loops over elements: the records bound to memory, and their LLVM IR."""
