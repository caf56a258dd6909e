"""Bytes become records: sources, the store that verifies them, one reader per family of formats, cached datasets."""

from dialnb import lazily

ROOMS = {
    "corpora": "Conversation all_said collection paired_dialogues sentences_of",
    "datasets": "Dataset Found find_reader load named_data records_path",
    "own": "from_csv from_jsonl",
    "records": (
        "Dialogue InferenceItem IntentUtterance MatchingGroup QuestionAnswer Record RetrievalQuery ScoredPair "
        "SelectionGroup Texts Utterance conversation_of"
    ),
    "store": "Store default_store",
}
__all__, __getattr__, __dir__ = lazily(__name__, ROOMS)
