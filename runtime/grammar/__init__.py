"""Structured generation: which tokens may come next, so that an output is sure to match."""
