"""What does not fit together in a mesh: mesh → findings. Pure functions."""
