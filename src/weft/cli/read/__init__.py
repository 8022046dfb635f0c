"""Reads the input that commands take from elsewhere than a running mesh's control plane: YAML files, programs and
certificates on this machine, access logs, and the inventory of a cluster."""
