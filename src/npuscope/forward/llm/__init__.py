"""Model configs to predicted forward passes."""
