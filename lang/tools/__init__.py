"""Typed functions that a model may call, ours and those of MCP servers."""
