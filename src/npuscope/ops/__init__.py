"""What an op of the tile language is."""
