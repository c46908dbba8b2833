"""Pure thinking: no I/O, no clock, no randomness. Everything it knows is passed in."""
