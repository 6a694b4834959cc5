"""An app whose agents tell a file when they begin: what other processes measure."""
