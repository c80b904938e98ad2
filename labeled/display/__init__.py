"""What people see: text and HTML of datasets, plans and batches, pictures, progress bars."""
