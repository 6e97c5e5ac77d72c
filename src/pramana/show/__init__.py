"""Stage 6, show: results and findings for users, in the terminal, over HTTP, in the browser and in coding agents."""
