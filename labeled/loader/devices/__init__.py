"""Batches that live on a device.

`plan` says what goes there, `uploads` are windows on their way, `dealing` makes batches there,
`placing` sends what a pipeline made on the host.
"""
