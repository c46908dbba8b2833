"""The workflow engine: what users write, and the worker that runs it."""
