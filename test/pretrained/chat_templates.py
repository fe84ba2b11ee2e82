"""Renders chat templates with Jinja as transformers sets it up. usage: chat_templates.py FILE"""

import json
import sys

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)

templates = {
    "tags": "{%- for message in messages %}\n    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n",
    "headers": "{{ bos_token }}{% for m in messages %}{% set content = '<|h|>' + m['role'] + '<|e|>\n\n' + m['content'] | trim + '<|eot|>' %}{% if loop.index0 == 0 %}{% set content = '[first]' + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}<|h|>assistant<|e|>\n\n{% endif %}",
    "turns": "{% if messages[0]['role'] == 'system' %}\n  {% set system = messages[0]['content'] %}\n  {% set rest = messages[1:] %}\n{% else %}\n  {% set rest = messages %}\n{% endif %}\n{% for m in rest %}\n  {% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\n    {{ raise_exception('roles must alternate') }}\n  {% endif %}\n  {% if m.role == 'user' %}\n[INST] {% if loop.first and system is defined %}{{ system ~ '\\n\\n' }}{% endif %}{{ m.content.strip() }} [/INST]\n  {%- else %}\n {{ m.content }}{{ eos_token }}\n  {%- endif %}\n{% endfor %}\n",
    "namespace": "{% set ns = namespace(n=0, last=none) %}{% for m in messages | selectattr('role', 'equalto', 'user') %}{% set ns.n = ns.n + 1 %}{% set ns.last = m.content %}{% endfor %}{{ ns.n }} {{ ns.last | upper }} {{ messages | map(attribute='role') | join(', ') }} {{ messages[::-1][0].role }} {{ messages[-1].content[:3] }}",
    "macros": "{% macro wrap(text, sign='*') %}{{ sign }}{{ text | replace('a', 'A') }}{{ sign }}{% endmacro %}{% for m in messages %}{{ wrap(m.content) }}{{ wrap(m.role, sign='#') }}{% if not loop.last %}, {% endif %}{% else %}none{% endfor %}",
    "tools": "{% if tools %}Tools:\n{% for tool in tools %}{{ tool | tojson }}\n{{ tool | tojson(indent=2) }}\n{% endfor %}{% endif %}{% for key, value in tools[0].items() %}{{ key }}={{ value }};{% endfor %}{{ missing | default('x') }}{{ 'y' if tools is iterable and tools is not string else 'z' }}",
    "control": "{# a note #}{% for m in messages if m.role != 'system' %}{% if loop.index > 2 %}{% break %}{% endif %}{{ loop.index }}{{ loop.last }}{{ m.role in ['user', 'tool'] }}{{ 'a' not in m.content }} {% endfor %}{{ 7 // 2 }} {{ 7 % 4 }} {{ 1 + 2 * 3 }} {{ -2 }} {{ none }} {{ [1, 'b'] }} {{ 'it''s' if false else 'tail' }}".replace("'it''s'", "\"it's\""),
}
chats = [
    [{"role": "user", "content": " Hello, café? "}, {"role": "assistant", "content": "Yes.\nOpen."}, {"role": "user", "content": "a b"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Banana"}],
]
variables = {"bos_token": "<s>", "eos_token": "</s>", "tools": [{"name": "add", "args": {"x": 1, "y": [True, None, "ü"]}}]}
rows = [
    {"name": name, "template": source, "messages": messages, "prompt": prompt, "text": env.from_string(source).render(messages=messages, add_generation_prompt=prompt, raise_exception=lambda m: 1 / 0, **variables)}
    for name, source in templates.items() for messages in chats for prompt in (False, True)
]
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump({"variables": variables, "rows": rows}, file, indent=1, ensure_ascii=False)
