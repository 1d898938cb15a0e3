"""Reports on deletions and on experiments, as HTML and Markdown. They show results and compute none."""
