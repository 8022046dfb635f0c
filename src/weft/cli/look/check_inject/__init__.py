"""`weft check-inject`: shows whether pods get a proxy. `command.py` is the command, `files.py` decides for the pod
templates in files, `webhooks.py` for the pods of a cluster."""
