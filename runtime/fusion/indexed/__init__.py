"""Fusions of gathers and scatters with the computation of their indices."""
