"""The names of the language and the one rewrite of the source."""
