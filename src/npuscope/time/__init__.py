"""Time without the chip: one core's pipelines, then the chip with its scheduler."""
