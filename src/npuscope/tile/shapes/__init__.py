"""`shapes` mode: a program is recorded without computing it, and what repeats is run once (architecture.md)."""
