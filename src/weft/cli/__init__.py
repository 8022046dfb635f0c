"""The `weft` command. Commands are in folders by what a person wants: run, files, look, install, parts, pod. `reach`
and `read` get data, `print` shows it, and `flags` declares what several commands take. Data goes to standard output,
messages to standard error.

Whatever is heavy is imported inside the command that needs it, so that `weft --help` answers at once.
"""
