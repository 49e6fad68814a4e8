"""Object files: how those of each format are linked, what is read and what is checked in them."""
