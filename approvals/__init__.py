"""How a question reaches a person, and how the answer comes back: once, from who may give it."""
