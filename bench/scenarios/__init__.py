"""One scenario per file. Each has ``async def measure(scale) -> Result`` and says above it what it asks."""
