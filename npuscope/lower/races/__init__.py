"""Accesses of GM that conflict and that nothing orders."""
