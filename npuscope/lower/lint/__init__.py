"""Rules that find what a program wastes or gets wrong; one file per rule or per family that shares its reading."""
