"""OpenAI's completions and chat completions."""
