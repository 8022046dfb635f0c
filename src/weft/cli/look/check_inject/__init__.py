"""`weft check-inject`: shows whether pods get a proxy. `command.py` is the command, `files.py` decides for the pod
templates in files, `webhooks.py` by the webhooks of a cluster."""
