"""Regular expressions, read as Python's `re` reads them."""
