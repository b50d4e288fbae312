"""Triton kernels of attention fusions and ragged products: their source text, and its compilation to cubins."""
