"""JSON schemas as exact grammars."""
