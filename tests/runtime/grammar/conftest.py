"""pytest puts this folder on the path for its tests and those of the folders below: they share patterns and schemas."""
