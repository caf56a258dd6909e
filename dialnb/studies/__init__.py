"""What each paper's notebook does, step by step: which models are trained on what, and which rows fill which table."""
