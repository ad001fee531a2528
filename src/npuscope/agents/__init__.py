"""What agents use: the server of the Model Context Protocol, and the guide that says what a writer of kernels knows."""
