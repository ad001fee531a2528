"""What everything stands on: errors, progress, files of our own, processes of their own."""
