"""How commands print: errors and hints, JSON and YAML, tables that fit the terminal."""
