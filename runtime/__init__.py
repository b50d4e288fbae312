"""Runtime: compiles a scheduled module to thunks over buffer slices and executes them."""
