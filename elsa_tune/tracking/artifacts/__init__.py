"""A search's record in a store of files that another machine can reach, kept up to date."""
