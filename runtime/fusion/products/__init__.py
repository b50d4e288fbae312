"""Fusions of matrix products: epilogues, factors, and slices that are multiplied in place."""
