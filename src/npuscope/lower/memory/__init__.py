"""Where everything lies on chip: from when to when it is needed, and its address."""
