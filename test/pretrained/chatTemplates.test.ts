import { readFileSync } from "node:fs";
import { byteTokenizer, type ChatMessage, encodeChat, parseChatTemplate } from "shardwise/train";
import { describe, expect, test } from "vitest";

interface Row {
  readonly name: string;
  readonly template: string;
  readonly messages: readonly ChatMessage[];
  readonly prompt: boolean;
  readonly text: string;
}

/** What Jinja renders; `chat_templates.py` writes this file. */
const { variables, rows }: { variables: Record<string, unknown>; rows: readonly Row[] } = JSON.parse(
  readFileSync(new URL("./fixtures/chatTemplates.json", import.meta.url), "utf8"),
);

describe("a chat template", () => {
  test.each(rows.map((row, i) => [`${row.name} ${i}`, row] as const))(
    "gives the text of Jinja: %s",
    (_name, row) => {
      const chat = parseChatTemplate(row.template);
      expect(chat(row.messages, { addGenerationPrompt: row.prompt, variables })).toBe(row.text);
    },
  );

  const render = (source: string) => () => parseChatTemplate(source)([{ role: "user", content: "x" }]);

  test.each([
    ["a range that is too long", "{% for i in range(999999999) %}{% endfor %}", "more than 100000"],
    [
      "loops in loops without end",
      "{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}",
      "stopped after 1000000 steps",
    ],
    ["macros that call themselves", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "stopped"],
    ["an exception of its own", "{{ raise_exception('roles must alternate') }}", "roles must alternate"],
    ["an unknown filter", "{{ 1 | shout }}", 'unknown filter "shout"'],
    ["an unknown statement", "{% include 'x' %}", 'unknown statement "include"'],
    ["a break outside of a loop", "{% if true %}{% break %}{% endif %}", "break stands in no loop"],
    [
      "a macro that leaves the loop around it",
      "{% for i in [1] %}{% macro f() %}{% continue %}{% endmacro %}{% endfor %}",
      "continue stands in no loop",
    ],
    ["a block without an end", "{% if true %}x", "a block has no endif"],
    [
      "a way to JavaScript's objects",
      "{{ messages.constructor.constructor('return 1')() }}",
      'has no "constructor"',
    ],
    ["a field of nothing", "{{ nothing.here }}", 'has no "here"'],
  ])("with %s is refused", (_what, source, message) => {
    expect(render(source)).toThrow(message);
  });

  test("keeps what an iteration has written before it is left", () => {
    const loop = (leave: string) =>
      `{% for i in [1, 2, 3] %}a{% if i == 2 %}b{% ${leave} %}{% endif %}c{% endfor %}d`;
    expect(render(loop("break"))()).toBe("acabd");
    expect(render(loop("continue"))()).toBe("acabacd");
  });

  test("reaches no prototype", () => {
    expect(render("{{ messages[0].__proto__ }}{{ ''.constructor }}{{ messages[0]['constructor'] }}")()).toBe(
      "",
    );
  });
});

describe("encodeChat", () => {
  const chat = parseChatTemplate(rows[0]?.template ?? "");
  test("marks the tokens of the assistant's answers alone", () => {
    const tokenizer = byteTokenizer();
    const messages = [
      { role: "user", content: "Hi" },
      { role: "assistant", content: "One" },
      { role: "user", content: "And?" },
      { role: "assistant", content: "Two" },
    ];
    const { tokens, mask } = encodeChat(messages, chat, tokenizer);
    expect(tokenizer.decode(tokens)).toBe(chat(messages));
    const trained = tokenizer.decode(tokens.filter((_, i) => mask[i] === 1));
    expect(trained).toBe("One<|im_end|>\nTwo<|im_end|>\n");
  });

  test("refuses templates whose text for the first messages depends on later ones", () => {
    const counting = parseChatTemplate(
      "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}",
    );
    const messages = [
      { role: "user", content: "a" },
      { role: "assistant", content: "b" },
    ];
    expect(() => encodeChat(messages, counting, byteTokenizer())).toThrow("its answers cannot be marked");
  });
});
