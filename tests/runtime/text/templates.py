"""Chat templates in the manners that models have, written for these tests."""

from __future__ import annotations

CHATML = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nYou are helpful.<|im_end|>\n{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# The system message becomes part of the first user turn; roles must alternate.
FOLDING = (
    "{{ bos_token }}{% set system = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}"
    "{% set turns = messages[1:] if system else messages %}"
    "{% for message in turns %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate.') }}{% endif %}"
    "{% if message['role'] == 'user' %}[INST] {% if loop.first and system %}<<SYS>>{{ system }}<</SYS>> {% endif %}"
    "{{ message['content'] | trim }} [/INST]{% else %} {{ message['content'] | trim }} {{ eos_token }}{% endif %}"
    "{% endfor %}"
)

# The system message stands in the last user turn, so every new user turn moves it.
MOVING = (
    "{% for message in messages %}{% if message['role'] == 'user' %}<|u|>"
    "{% if loop.last and messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}: {% endif %}"
    "{{ message['content'] }}<|e|>"
    "{% elif message['role'] == 'assistant' %}<|a|>{{ message['content'] }}<|e|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|a|>{% endif %}"
)

# Reasoning of earlier turns is dropped once the user has answered.
THINKING = (
    "{% set last = namespace(at=0) %}{% for m in messages %}{% if m['role'] == 'user' %}{% set last.at = loop.index0 %}"
    "{% endif %}{% endfor %}{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' and loop.index0 < last.at %}{{ m['content'].split('</think>')[-1] }}"
    "{% else %}{{ m['content'] }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
