"""Records become training examples: pairs, windows, templates, matching groups, utterance manipulations."""
