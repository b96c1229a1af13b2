"""Programs traced into graphs, and run as one request."""
