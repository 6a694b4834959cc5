"""How a question reaches a person, and how the answer comes back: once, by someone with the right."""
