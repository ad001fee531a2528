"""Passes over a recorded program: does it fit on chip, is it safe to schedule, what does it waste."""
