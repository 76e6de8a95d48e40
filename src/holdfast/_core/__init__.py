"""The protocols on which everything else builds: parameter objects, sets, losses, rows, problems, solutions."""
