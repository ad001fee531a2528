"""How a body flows: who made each tile, who uses it, and what became of it in global memory."""
