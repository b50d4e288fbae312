"""Implementation of the GPU driver interface with CuPy and CUDA's libraries."""
