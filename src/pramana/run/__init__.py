"""Stage 2, run: cases in, a stream of results out; workers, limits, retries. It never stores or displays anything."""
