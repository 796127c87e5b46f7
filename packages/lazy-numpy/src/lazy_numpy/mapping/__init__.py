"""What NumPy's functions and ufuncs mean in core operations, by family; see `dispatch` for the table."""
