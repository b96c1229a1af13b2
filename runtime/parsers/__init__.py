"""What a model wrote, told apart as it streams: text, reasoning, tool calls. No tokenizer, no HTTP, no torch."""
