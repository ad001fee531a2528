"""Running a file of the user."""
