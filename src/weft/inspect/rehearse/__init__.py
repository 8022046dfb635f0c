"""Build a mesh from files that are not applied, and find its problems and its pods."""
