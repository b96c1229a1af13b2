"""Text in, text out, over an engine that knows token ids only: shared by the api, programs and Engine."""

from palmette.runtime.frontend.branch import Branch
from palmette.runtime.frontend.chat_generation import ChatGeneration, collect_chats
from palmette.runtime.frontend.chat_turn import ChatChunk, ChatFinish, ChatMessage, ChatOutput, ChatTurn, ToolCall
from palmette.runtime.frontend.engine_health import Health
from palmette.runtime.frontend.frontend import Frontend, Prompt
from palmette.runtime.frontend.generation import Generation, Output, collect
from palmette.runtime.frontend.state import Message

__all__ = [
    "Branch",
    "ChatChunk",
    "ChatFinish",
    "ChatGeneration",
    "ChatMessage",
    "ChatOutput",
    "ChatTurn",
    "Frontend",
    "Generation",
    "Health",
    "Message",
    "Output",
    "Prompt",
    "ToolCall",
    "collect",
    "collect_chats",
]
