"""Drawings of static pages: SVG as text, what came from a capture escaped, and the legends below them."""
