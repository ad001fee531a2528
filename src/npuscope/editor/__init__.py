"""The language server: what editors show of a tile program, at its lines."""
