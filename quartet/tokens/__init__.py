"""Contexts and features as tensors. Torch begins here."""

from quartet.tokens.batch import Part, TableRows, TokenBatch, Tokenizer, shuffled_places, with_tensors

__all__ = ["Part", "TableRows", "TokenBatch", "Tokenizer", "shuffled_places", "with_tensors"]
