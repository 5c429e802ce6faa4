"""What can go wrong, as one tree; every message is one sentence that says what to do.

EdgespecError
├── UsageError              asked for something that cannot be: an unknown pair, a bad option
├── ModelError              a model file and what is in it
│   ├── ModelNotFound       no such file
│   ├── ModelUnreadable     not a GGUF, cut short, not a language model, does not decode
│   ├── NoChatTemplate      the model has no chat template
│   └── VocabularyMismatch  target and draft do not speak the same tokens
├── SourceError             a model could not be fetched
├── BackendError            llama.cpp refused or failed
│   ├── BackendMissing      no usable llama.cpp library
│   ├── RollbackRefused     the cache could not be trimmed
│   ├── Interrupted         a decode was stopped from another thread
│   └── Closed              used after close()
├── PromptTooLong           the prompt does not fit the context
├── BadLogits               the model's output is not finite
├── PeerFailed              another program that bench asks did not answer
├── LoadCancelled           loading was stopped by its caller
└── EngineBusy              another answer is in progress
"""

from __future__ import annotations


class EdgespecError(Exception):
    """Anything edgespec raises on purpose; `exit_code` is what the command line ends with."""

    exit_code = 1


class UsageError(EdgespecError):
    exit_code = 2


class ModelError(EdgespecError):
    pass


class ModelNotFound(ModelError):
    pass


class ModelUnreadable(ModelError):
    pass


class NoChatTemplate(ModelError):
    pass


class VocabularyMismatch(ModelError):
    pass


class SourceError(EdgespecError):
    pass


class BackendError(EdgespecError):
    pass


class BackendMissing(BackendError):
    pass


class RollbackRefused(BackendError):
    pass


class Interrupted(BackendError):
    pass


class Closed(BackendError):
    pass


class PromptTooLong(EdgespecError):
    pass


class BadLogits(EdgespecError):
    pass


class PeerFailed(EdgespecError):
    pass


class LoadCancelled(EdgespecError):
    pass


class EngineBusy(EdgespecError):
    pass
