"""Encoders (any Hugging Face encoder plus pooling) and the heads that objectives put on top."""
