"""How the source reads: its constants, sections and comments, and lines as they should be."""
