"""What every kernel takes of each memory, and which constant fills it."""
