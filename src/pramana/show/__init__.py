"""Stage 6, show: findings to people, at the terminal; later over HTTP and in the browser."""
