"""What a step costs, and what a device allows: bytes, operations and the bound that binds, as pure functions."""
