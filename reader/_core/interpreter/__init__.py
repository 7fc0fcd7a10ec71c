"""The interpreter: signals that are held back, and looks at objects that leave no trace."""
