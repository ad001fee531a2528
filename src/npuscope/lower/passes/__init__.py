"""The steps from a recorded body to one with places, pipes and cores, one file each; `lowering.py` has their order."""
