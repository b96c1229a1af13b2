"""Our own surface: generate, tokenize, branches, programs."""
