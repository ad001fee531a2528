"""The ops, a module per family. Each checks its operands, computes where values are kept, and records itself."""
