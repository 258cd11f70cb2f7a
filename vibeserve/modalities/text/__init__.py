"""The built-in contract of text models: completions, streamed, judged on the served token ids."""
