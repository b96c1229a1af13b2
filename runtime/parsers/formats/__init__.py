"""The tool-call formats of common open models, one small file each; runtime/parsers/registry.py knows them all."""
