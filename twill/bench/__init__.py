"""One command for a machine with a GPU: every kernel verified and timed, in child processes with a watchdog, with a report."""
