"""Lowering of convolutions: choice of kernels, and decomposition into phases."""
