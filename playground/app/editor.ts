/** The editor: CodeMirror with the TypeScript language service. */
import { autocompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { javascript } from "@codemirror/lang-javascript";
import { bracketMatching, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { linter, lintKeymap } from "@codemirror/lint";
import { EditorState, Prec } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  hoverTooltip,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";
import { check, complete, hover } from "./language.js";

/** An editor of one program. */
export interface Editor {
  text(): string;
  replace(text: string): void;
  /** Puts the cursor on a line and shows it. */
  goTo(line: number, column?: number): void;
}

const mistakes = linter(async ({ state }) => {
  const found = await check(state.doc.toString());
  const length = state.doc.length;
  return found.map(({ from, to, message }) => ({
    from: Math.min(from, length),
    to: Math.min(to, length),
    severity: "error" as const,
    message,
  }));
});

const completions = autocompletion({
  override: [
    async (context) => {
      const word = context.matchBefore(/[\w$]*/);
      const isMember = context.state.sliceDoc(Math.max(0, context.pos - 1), context.pos) === ".";
      if (!context.explicit && !isMember && (!word || word.from === word.to)) return null;
      const entries = await complete(context.state.doc.toString(), context.pos);
      return { from: word?.from ?? context.pos, options: entries, validFor: /^[\w$]*$/ };
    },
  ],
});

const hovers = hoverTooltip(async (view, at) => {
  const found = await hover(view.state.doc.toString(), at);
  if (!found) return null;
  const dom = document.createElement("pre");
  dom.textContent = found.text;
  return { pos: found.from, end: found.to, create: () => ({ dom }) };
});

/** Makes an editor; Ctrl+Enter runs the program, Escape and then Tab leaves it. */
export function createEditor(parent: HTMLElement, text: string, run: () => void): Editor {
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        Prec.highest(
          keymap.of([
            {
              key: "Mod-Enter",
              run: () => {
                run();
                return true;
              },
            },
          ]),
        ),
        lineNumbers(),
        highlightActiveLine(),
        highlightActiveLineGutter(),
        drawSelection(),
        history(),
        indentOnInput(),
        bracketMatching(),
        javascript({ typescript: true }),
        syntaxHighlighting(classHighlighter),
        mistakes,
        completions,
        hovers,
        keymap.of([...completionKeymap, ...lintKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
        EditorView.contentAttributes.of({ "aria-label": "Program", "data-editor": "ready" }),
      ],
    }),
  });
  return {
    text: () => view.state.doc.toString(),
    replace: (changed) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: changed } }),
    goTo: (line, column = 1) => {
      const { from, length } = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
      view.dispatch({ selection: { anchor: from + Math.min(column - 1, length) }, scrollIntoView: true });
      view.focus();
    },
  };
}
