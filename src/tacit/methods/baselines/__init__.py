"""What every method is compared with."""
