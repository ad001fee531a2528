"""What tasks move, how long that takes at peak rates, who waits for whom, and which tasks could be one."""
