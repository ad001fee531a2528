"""Shapes mode: equal work recorded once."""
