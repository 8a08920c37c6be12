"""What people see in the terminal."""
