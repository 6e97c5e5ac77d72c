"""Two runs or two models side by side on the same cases."""
