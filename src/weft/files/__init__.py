"""YAML on disk: turns a directory into changes of objects, with the line of every field."""
