"""What commands read besides a running mesh: YAML files, programs and certificates on this machine, access logs."""
