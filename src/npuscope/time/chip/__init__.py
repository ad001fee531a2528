"""The chip: blocks on cores, memory that they share, and the scheduler that hands them out."""
