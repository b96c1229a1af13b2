"""Grammars that begin after the model has thought."""
