"""Shardings in text: XLA's forms, meshes and replica groups, and Shardy's attributes."""
