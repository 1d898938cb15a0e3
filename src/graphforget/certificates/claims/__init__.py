"""The kinds of claims. Each file holds one kind, which issues itself, words itself and rechecks itself."""
