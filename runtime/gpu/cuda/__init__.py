"""The driver of a GPU through CuPy and CUDA's libraries."""
