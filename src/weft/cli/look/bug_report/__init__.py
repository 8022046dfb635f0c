"""`weft bug-report`: the command, the archive it writes, and the removal of secrets from it."""
