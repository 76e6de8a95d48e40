"""The nouns everything else is made of: parameter objects, sets, losses, rows, problems, solutions."""
