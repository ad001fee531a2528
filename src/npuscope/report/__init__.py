"""Results as text. No analysis in here."""
