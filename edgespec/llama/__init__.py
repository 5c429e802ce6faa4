"""The binding to llama.cpp: the only room that imports llama_cpp, and only inside functions.

`Model.load` opens a file, `Model.vocabulary` knows its tokens, `Context` decodes, `JinjaTemplate` writes conversations,
`prove` finds out in a child process whether a file decodes soundly on this machine.
"""

from __future__ import annotations

from edgespec.llama.context import Context
from edgespec.llama.model import Model
from edgespec.llama.proof import Proof, prove
from edgespec.llama.template import JinjaTemplate
from edgespec.llama.vocabulary import LlamaVocabulary

__all__ = ["Context", "JinjaTemplate", "LlamaVocabulary", "Model", "Proof", "prove"]
