"""Fused attention: score matrices are computed in the kernels that reduce or contract them, and never in memory."""
