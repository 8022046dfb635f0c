"""Reads YAML files: turns a directory into changes of objects, with the line number of every field."""
