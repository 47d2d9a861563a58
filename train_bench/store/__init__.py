"""What many campaigns and published entries came to, in one file that queries are asked of."""
