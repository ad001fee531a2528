"""Shares as sentences say them."""

from __future__ import annotations


def told_share(share: float) -> str:
    """43%, and 7.5% below ten."""
    return f"{share * 100:.0f}%" if share >= 0.0995 else f"{share * 100:.2g}%"
