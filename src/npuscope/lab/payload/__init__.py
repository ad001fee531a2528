"""What each panel of the app shows: one pure function per module, from a result to plain data."""
