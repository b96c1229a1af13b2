"""Chat models made for tests: the tiny tokenizer with more special tokens, templates in the manner of published ones,
and a scripted engine that writes given texts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from scripted_link import READY, ScriptedLink

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.frontend import Frontend
from palmette.runtime.messages.requests import Generate
from palmette.runtime.messages.tokens import unpack
from palmette.runtime.text.folder_tokenizer import folder_tokenizer
from palmette.runtime.text.tokenizer import Tokenizer
from palmette.runtime.text.turns import TurnRenderer

# In the manner of Qwen 3: tools in the system turn, calls in tags, reasoning in tags unless it is turned off.
QWEN = (
    "{% if tools %}<|im_start|>system\n<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools>\n"
    'Answer with <tool_call>\n{"name": …, "arguments": …}\n</tool_call><|im_end|>\n{% endif %}'
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}{% for call in m.tool_calls or [] %}{% if m.content or not loop.first %}{{ '\n' }}{% endif %}"
    '<tool_call>\n{"name": "{{ call.function.name }}", "arguments": '
    "{% if call.function.arguments is string %}{{ call.function.arguments }}"
    "{% else %}{{ call.function.arguments | tojson }}{% endif %}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
# The same, but the prompt opens the reasoning.
THINKING = QWEN.removesuffix("{% endif %}{% endif %}") + "{% else %}<think>\n{% endif %}{% endif %}"
# In the manner of DeepSeek V3: arguments are joined to a text, and only a message without content has calls.
DEEPSEEK = (
    "{% for m in messages %}{% if m['role'] == 'assistant' and m['content'] is none %}"
    "<｜tool▁calls▁begin｜>{% for call in m['tool_calls'] %}"
    "{{ '<｜tool▁call▁begin｜>' + call['type'] + '<｜tool▁sep｜>' + call['function']['name'] + '\\n```json\\n'"
    " + call['function']['arguments'] + '\\n```<｜tool▁call▁end｜>' }}{% endfor %}<｜tool▁calls▁end｜>"
    "{% else %}<|{{ m['role'] }}|>{{ m['content'] }}{% endif %}{% endfor %}"
    "{% if tools %}{{ tools | length }} tools{% endif %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# In the manner of Mistral: ids of nine characters or none.
MISTRAL = (
    "{% for m in messages %}{% if m.tool_calls %}[TOOL_CALLS] [{% for call in m.tool_calls %}"
    "{% if call.id | length != 9 %}{{ raise_exception('Tool call IDs have nine characters') }}{% endif %}"
    '{{ call.function | tojson }}{{ call.id }}{% endfor %}]{% elif m.role == "tool" %}'
    "[TOOL_RESULTS] {{ m.tool_call_id }} {{ m.name }} {{ m.content }}[/TOOL_RESULTS]"
    "{% else %}[INST]{{ m.content }}[/INST]{% endif %}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
)
# In the manner of gpt-oss: messages with headers, and a prompt that ends in one.
HARMONY = (
    "<|start|>system<|message|># Valid channels: analysis, commentary, final.<|end|>"
    "{% if tools %}<|start|>developer<|message|>namespace functions {{ tools | tojson }}<|end|>{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}<|start|>functions.{{ m.name }} to=assistant"
    "<|channel|>commentary<|message|>{{ m.content }}<|end|>{% elif m.tool_calls %}"
    "{% if m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}"
    "{% set call = m.tool_calls[0].function %}<|start|>assistant to=functions.{{ call.name }}"
    "<|channel|>commentary json<|message|>{{ call.arguments | tojson }}<|call|>{% elif m.role == 'assistant' %}"
    "<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{% else %}"
    "<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
HARMONY_SPECIALS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>")
SPECIALS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[INST]", "[/INST]")


def special_tokenizer(folder: Path, template: str, specials: Sequence[str] = SPECIALS) -> Tokenizer:
    """The tiny tokenizer with `specials` as special tokens and this template; `folder`: an empty one."""
    shutil.copytree(resolve("tiny").path, folder, dirs_exist_ok=True)
    path = folder / "tokenizer.json"
    given = json.loads(path.read_text())
    first = max(given["model"]["vocab"].values()) + 1
    first = max(first, *(token["id"] + 1 for token in given["added_tokens"]))
    given["added_tokens"] += [
        {"id": first + at, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for at, text in enumerate(specials)
    ]  # fmt: skip
    path.write_text(json.dumps(given))
    return folder_tokenizer(folder, template)


class ScriptedChat:
    """A frontend over an engine that writes `says`, whatever it is asked; None ends a turn, as EOS does."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        says: str | Callable[[str], str] = "",
        *,
        sizes: Sequence[int] = (1,),
        context: int = 8192,
        output_ids: bool = True,
    ) -> None:
        self.tokenizer = tokenizer
        self.says = says
        self.ends = True
        self.sizes = list(sizes)
        self._context = context
        self._output_ids = output_ids
        self.link: ScriptedLink

    def frontend(self) -> Frontend:
        ready = msgspec.structs.replace(READY, context_length=self._context)
        self.link = ScriptedLink(self.tokenizer.vocabulary, self._script, sizes=self.sizes, ready=ready)
        template = TurnRenderer.of(self.tokenizer)
        return Frontend(
            self.link, self.tokenizer, template, model="tiny", context_length=self._context, output_ids=self._output_ids
        )

    def _script(self, request: Generate) -> list[int]:
        prompt = self.tokenizer.decode(unpack(request.prompt), skip_special=False)
        text = self.says if isinstance(self.says, str) else self.says(prompt)
        ids = self.tokenizer.encode(text, special=True)
        return [*ids, self.tokenizer.eos_ids[0]] if self.ends else ids

    def asked(self) -> Generate:
        """The last request that the engine was sent."""
        return next(request for request in reversed(self.link.sent) if isinstance(request, Generate))

    def prompt(self) -> str:
        """Its prompt, special tokens written out."""
        return self.tokenizer.decode(unpack(self.asked().prompt), skip_special=False)
