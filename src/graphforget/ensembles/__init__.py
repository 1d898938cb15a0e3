"""The parts of GraphEraser that need no model: partitions into shards, and the aggregation of predictions."""
