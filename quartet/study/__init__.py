"""Studies: the paper's tables and figures, made again on any task, with the paper's figures beside ours."""
