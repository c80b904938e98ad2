"""What people see: text and HTML of datasets, plans and batches. Never reads data."""
