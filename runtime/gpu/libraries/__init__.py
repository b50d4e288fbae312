"""Kernels that CUDA libraries compute: their calls as plain data, alone or in sequences with PTX kernels."""
