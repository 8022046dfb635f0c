"""Commands for a mesh on this machine: demo, up, down, ps, status, logs, exec."""
