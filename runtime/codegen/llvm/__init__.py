"""Compilation of LLVM IR text for this host: pass pipelines, the linker, and the on-disk cache of machine code."""
