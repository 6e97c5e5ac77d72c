"""A new run: what is asked, who is asked, and what it will take, before it starts."""
