"""GPU driver through CuPy and CUDA's libraries."""
