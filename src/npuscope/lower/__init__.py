"""What becomes of a recorded program on the chip: instructions with places, pipes and addresses."""
