"""Grammars whose matcher is llguidance's."""
