"""A decode layer as in DeepSeek-V4, small: attention over a latent cache, then experts; on one card and over several.

The programs stand for the structure of the model, not for its sizes. `npuscope models` lists what runs.
"""
