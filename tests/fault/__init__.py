"""What happens when something dies, refuses or runs out."""
