"""Traces of requests replayed against the real tree and scheduler in virtual time, with predicted step times."""
