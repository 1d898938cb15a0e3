"""The request service: an HTTP interface, a worker and a web page in front of run directories."""
