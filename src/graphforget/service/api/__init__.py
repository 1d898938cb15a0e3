"""The HTTP interface: OpenDSR 2.0, what people decide, and connectors."""
