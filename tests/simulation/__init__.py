"""Complete workers in one thread, on the real scripts, with a seed that decides what happens next."""
