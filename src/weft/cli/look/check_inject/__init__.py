"""`weft check-inject`: the command, and how it decides for files and for the webhooks of a cluster."""
