"""/v1/responses, as OpenAI's clients speak it."""
