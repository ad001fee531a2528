"""NumPy kernels of the tile ops: arrays in, arrays out, rounding as the chip rounds."""
