"""Qwen3 decode as tile programs: BF16 and A8W8 layers, and the whole step from token ids to token ids.

Every program is made by a factory that closes over a `Qwen3` (config.py), so the same code runs at full size
(QWEN3_14B) and in tests (SMALL), in BF16 or FP32 storage.
"""
