"""What the charts of a report show, as plain data: lab/page/chart.js draws them, all alike."""
