"""Many candidates: each judged or timed in a process of its own, all of them started warm."""
