"""Sources of modules: files, directories of dumps, functions of JAX, StableHLO."""
