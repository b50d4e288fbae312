"""Convolutions as products of panels: kernels, phases and their geometry."""
