"""Device-independent passes."""
