"""Constants of the model fitted to what was measured on the chip."""
