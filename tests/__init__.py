"""The suite: one folder per part of the project, plus `promises` and `stories`."""
