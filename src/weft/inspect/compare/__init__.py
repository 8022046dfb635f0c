"""What differs between two states of a mesh: objects, resources, and what happens to requests."""
