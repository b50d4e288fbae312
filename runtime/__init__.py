"""From a scheduled module to thunks over buffer slices, and the executor that runs them."""
