"""Regular languages as automata over bytes, and grammars made of them."""
