"""Facts about modules: cost, trip counts, side effects. Nothing here changes a module."""
