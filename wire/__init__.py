"""Bytes to messages and back: schemas, record batches, error codes. Imports no other layer."""
