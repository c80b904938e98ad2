"""Batches that live on a device.

`plan` says what goes there, `uploads` are windows on their way, `decoding` is of chunks decoded
there, `direct` of files that the device reads; `dealing` makes batches there, `placing` sends
what a pipeline made on the host.
"""
