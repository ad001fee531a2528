"""What a chip is: units, memories, bandwidths, costs. Data in TOML, each constant with its source."""
