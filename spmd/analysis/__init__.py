"""Facts about modules: cost, trip counts, reachability, side effects. Nothing here changes a module."""
