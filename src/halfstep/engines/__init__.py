"""What runs a calibrated program, or writes it for others: one engine a file."""
