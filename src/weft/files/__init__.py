"""YAML on disk: a directory comes in, and leaves as changes of objects, with the line of every field."""
