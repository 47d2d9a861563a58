"""Pages of results for the browsers of this machine, and their server."""
