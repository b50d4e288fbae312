"""Kernel records: plain data that both back ends read, one file for each family of kernels."""
