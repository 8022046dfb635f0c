"""Commands that run inside pods: iptables, redirect, drain, clean, wait. They import nothing else of the command
line."""
