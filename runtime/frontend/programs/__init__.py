"""Compiled programs, run beside the frontend: which are under way, what their states do, what the cache is told."""
