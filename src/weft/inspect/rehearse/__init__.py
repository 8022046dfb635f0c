"""Build a mesh from files that are not applied: its problems and its pods."""
