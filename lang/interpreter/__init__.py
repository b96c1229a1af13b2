"""How one state's nodes are executed, in order, on a backend."""
