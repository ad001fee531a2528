"""Tables: columns beside results, how numbers read, the parts of a report as text, Markdown and JSON."""
