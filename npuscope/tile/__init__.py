"""The tile language of PyPTO, run on the CPU and recorded: `import npuscope.tile as pl`."""
