"""Commands that look inside a running mesh: describe, explain, why, proxy-config, proxy-status, audit and others."""
