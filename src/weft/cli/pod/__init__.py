"""Commands that run inside pods: iptables, redirect, drain, wait. They load nothing else of the command line."""
