"""One block on one core group: how long, and what each pipe waited for."""
