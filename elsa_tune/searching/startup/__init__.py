"""What a search asks before it begins or goes on: its rows, weights, versions, store, GPUs."""
