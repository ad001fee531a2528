"""What a run of a tile program leaves behind, and how it is written down."""
