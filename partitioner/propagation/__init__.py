"""Propagation of shardings: a fixpoint over the factors of every op."""
