"""`weft bug-report`: the command, the archive it writes, and the redaction of secrets."""
