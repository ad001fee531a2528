"""Measured runs: a capture that a prediction stands on, and a device file fitted to captures."""
