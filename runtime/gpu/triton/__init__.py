"""Triton kernels of attention fusions: their source text, and its compilation to cubins."""
