"""Where sources are compiled: at once, in threads, or in child processes."""
