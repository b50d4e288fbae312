"""Sorts and top-k: records bound to memory, and their LLVM IR."""
