"""A model on disk: naming, fetching, and reading it. Torch-free; knows nothing of tokens or requests."""
