"""The parts of GraphEraser that know no model: partitions into shards, and the aggregation of answers."""
