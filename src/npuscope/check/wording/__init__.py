"""How findings speak of tensors, regions, tasks and loops."""
