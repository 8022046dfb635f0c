"""Compare two states of a mesh: objects, resources, and the outcome of requests."""
