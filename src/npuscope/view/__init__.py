"""The local web server: a report and the same trace in the Perfetto UI, on loopback and offline."""
