"""Which tokens are computed next, and on which pages: the engine's side that holds leases on the radix tree."""
