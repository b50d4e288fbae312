"""The only folder that imports llvmlite: compilation of IR text on this host, its pass pipelines and caches."""
