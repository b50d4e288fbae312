"""The driver through CuPy, the only modules that import it here but the check for a GPU."""
