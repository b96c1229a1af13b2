"""Seeded workloads, drivers for engines and servers, peers, and what this machine could do at best."""
