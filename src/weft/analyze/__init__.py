"""Checks of a mesh's configuration, such as routes to hosts that do not exist: mesh → findings. Pure functions."""
