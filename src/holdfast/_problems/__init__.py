"""What is minimised: a loss, sets and rows, seen as a problem through views."""
