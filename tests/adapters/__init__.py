"""Examples that need another package, run with the package, and our batches beside its own."""
