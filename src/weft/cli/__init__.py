"""The `weft` command: one file per command. Data goes to standard output, words to standard error.

Whatever is heavy is imported inside the command that needs it, so that `weft --help` answers at once.
"""
