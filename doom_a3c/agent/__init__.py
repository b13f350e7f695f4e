"""What decides, plays and learns."""
