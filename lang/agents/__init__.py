"""Agents: a model that calls tools until it can answer."""
