"""Forward passes of a model in framework traces: cut out, priced against the chip, aligned with a prediction."""
