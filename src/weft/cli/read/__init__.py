"""Input of commands other than a running mesh: YAML files, programs and certificates on this machine, access logs."""
