"""MLflow as a store of records: written, read, and its pages set up."""
