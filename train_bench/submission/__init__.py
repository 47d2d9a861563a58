"""Packages for submissions."""
