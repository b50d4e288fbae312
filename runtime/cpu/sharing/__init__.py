"""Sharing one kernel's work among threads: which kernels can be cut into pieces, and when that pays."""
