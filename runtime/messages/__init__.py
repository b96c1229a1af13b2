"""Everything that crosses a process: frozen msgspec structs. A leaf: no torch, imports nothing of ours but errors."""
