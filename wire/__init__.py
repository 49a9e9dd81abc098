"""Bytes to messages and back: schemas, record batches, error codes, option declarations. Imports no layer."""
