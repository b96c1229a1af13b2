"""How a workload's calls reach a system: over HTTP, or in process."""
