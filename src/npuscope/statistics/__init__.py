"""Many runs: what differs from noise, and where a history changed. docs/noise.md has what was measured of it."""
