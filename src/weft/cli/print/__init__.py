"""Output of commands: errors and hints, JSON and YAML, tables that fit the terminal."""
