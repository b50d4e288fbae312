"""Thunks: what a device does, one frozen record per action, over buffer slices. One file per kind."""
