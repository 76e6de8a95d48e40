"""The protocols that everything else builds on: parameter objects, sets, losses, rows, problems, solutions."""
