"""What a chip is and what a kernel's name means, as data."""
