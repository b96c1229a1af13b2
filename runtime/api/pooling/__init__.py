"""Embeddings, scores and rankings."""
