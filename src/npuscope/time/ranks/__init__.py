"""Several ranks: their chips run together, and what collectives between them cost."""
