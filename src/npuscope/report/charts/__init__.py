"""What the charts of a report show, as plain data: lab/page/chart/ draws them, all alike."""
