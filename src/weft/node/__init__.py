"""What a machine does for its workloads: their identities and the sockets of these, their Envoys, interception."""
