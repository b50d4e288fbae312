"""Sorts and top-k: the records bound to memory, and their LLVM IR."""
