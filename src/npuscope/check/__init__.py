"""What is wrong with a tile program, and the fix."""
