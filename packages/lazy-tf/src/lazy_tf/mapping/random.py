"""Stateless random operations."""
