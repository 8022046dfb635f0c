"""The `weft` command. Commands are in folders by purpose: run, files, look, install, parts, pod. `reach` and `read` get
data, `print` shows it, and `flags` declares options that several commands share. Data is written to standard output,
messages to standard error.

Heavy modules are imported inside the command that needs them, so that `weft --help` is fast.
"""
