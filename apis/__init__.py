"""One module per API group: authorise, call, fill in the response."""
