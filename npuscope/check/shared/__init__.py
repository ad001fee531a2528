"""What several rules need."""
