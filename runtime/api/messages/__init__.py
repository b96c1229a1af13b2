"""/v1/messages, as Anthropic's clients speak it."""
