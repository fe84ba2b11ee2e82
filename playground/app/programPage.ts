/** The page on which programs are written and run. */
import type { CallReport, FromProgram } from "../sandbox/messages.js";
import { collectivesView, passesView, placementPicture, placementsView, timesView } from "./callView.js";
import { formatMs, h, menu } from "./dom.js";
import type { Editor } from "./editor.js";
import { lazily } from "./lazily.js";
import type { Page } from "./main.js";
import { engines, type RunningProgram, runProgram } from "./sandbox.js";
import { pack, unpack } from "./share.js";

/** A program of the documentation. */
interface Example {
  readonly group: string;
  readonly title: string;
  readonly code: string;
}

const examples = lazily(async () => (await (await fetch("examples.json")).json()) as readonly Example[]);

/** What a run has told so far. */
class Results {
  readonly calls = new Map<number, { report?: CallReport; compiled?: number; readonly runs: number[] }>();
  readonly placements: HTMLElement[] = [];

  of(id: number) {
    const call = this.calls.get(id) ?? { runs: [] };
    this.calls.set(id, call);
    return call;
  }
}

const views = ["Output", "Programs", "Devices", "Messages", "Times"] as const;
type View = (typeof views)[number];

export const page: Page = (root, query) => {
  let editor: Editor | undefined;
  let running: RunningProgram | undefined;
  let results = new Results();
  let shown: View = "Output";
  let engine = engines[0] ?? "one thread";
  let isGone = false;
  /** How many runs were started or stopped: what an earlier one was waiting for is no longer wanted. */
  let turn = 0;
  let isRedrawing = false;

  const area = h("textarea", { "aria-label": "Program", spellcheck: "false" });
  const pane = h("div", { class: "pane editor" }, area);
  const status = h("div", { class: "status", role: "status" }, "Loading the editor …");
  const output = h("pre", { class: "output", "aria-live": "polite" });
  const body = h("div", { class: "body", role: "tabpanel", tabindex: 0 });
  const text = () => editor?.text() ?? area.value;
  const say = (message: string, isError = false) => {
    status.textContent = message;
    status.classList.toggle("error", isError);
  };
  const goTo = (line: number, column?: number) => editor?.goTo(line, column);

  const tabs = views.map((view) => h("button", { role: "tab", onclick: () => show(view) }, view));
  function show(view: View): void {
    shown = view;
    for (const [i, tab] of tabs.entries()) tab.setAttribute("aria-selected", String(views[i] === view));
    body.setAttribute("aria-label", view);
    body.replaceChildren(...contents(view));
  }
  function contents(view: View): Node[] {
    if (view === "Output") return [output];
    const calls = [...results.calls.values()];
    if (view === "Times") {
      const rows = calls.flatMap(({ report, ...times }) => (report ? [{ name: report.name, ...times }] : []));
      return rows.length > 0 ? [timesView(rows)] : [empty()];
    }
    const reports = calls.flatMap(({ report }) => (report ? [report] : []));
    const draw = {
      Programs: (one: CallReport) => passesView(one, goTo),
      Devices: placementsView,
      Messages: collectivesView,
    }[view];
    const parts = reports.flatMap((report) => [h("h3", {}, report.name), draw(report)]);
    if (view === "Devices") parts.push(...results.placements);
    return parts.length > 0 ? parts : [empty()];
  }
  const empty = () => h("p", {}, "Run a program that calls jit or shardMap: what they do is shown here.");

  /** Draws the view again, once for all that a program tells in the meantime. */
  function redraw(): void {
    if (isRedrawing || shown === "Output") return;
    isRedrawing = true;
    requestAnimationFrame(() => {
      isRedrawing = false;
      if (shown !== "Output") show(shown);
    });
  }

  function stop(): void {
    turn++;
    running?.stop();
    running = undefined;
    runButton.disabled = false;
    stopButton.disabled = true;
  }

  function told(message: FromProgram): void {
    switch (message.kind) {
      case "log": {
        const line = h("span", { class: message.level === "error" && "error" }, `${message.text}\n`);
        output.append(line);
        return;
      }
      case "call":
        results.of(message.id).report = message.report;
        break;
      case "compiled":
        results.of(message.id).compiled = message.ms;
        break;
      case "ran":
        results.of(message.id).runs.push(message.ms);
        break;
      case "placement":
        results.placements.push(placementPicture(message.placement));
        break;
      case "looping":
        say(
          `Running … The loop in line ${message.line} has not paused for ${message.seconds} s: Stop ends it.`,
        );
        return;
      case "ended":
        say(`Finished in ${formatMs(message.ms)}.`);
        stop();
        break;
      case "failed":
        fail(message.message, message.line, message.column);
        stop();
        return;
    }
    redraw();
  }

  function fail(message: string, line?: number, column?: number): void {
    const place = line === undefined ? "" : `Line ${line}: `;
    say(`${place}${message.split("\n")[0]}`, true);
    output.append(h("span", { class: "error" }, `${place}${message}\n`));
    show("Output");
    if (line !== undefined) goTo(line, column);
  }

  async function run(): Promise<void> {
    stop();
    const own = turn;
    results = new Results();
    output.replaceChildren();
    show(shown);
    runButton.disabled = true;
    stopButton.disabled = false;
    say("Compiling …");
    try {
      const { compile } = await import("./language.js");
      const compiled = await compile(text());
      if (own !== turn) return;
      if ("mistake" in compiled) {
        fail(compiled.mistake.message, compiled.mistake.line);
        stop();
        return;
      }
      say("Running … Stop ends a program that takes too long.");
      const program = await runProgram(compiled.code, engine, told);
      if (own !== turn) program.stop();
      else running = program;
    } catch (error) {
      if (own !== turn) return;
      fail(error instanceof Error ? error.message : String(error));
      stop();
    }
  }

  async function share(): Promise<void> {
    const url = `${location.href.split("#")[0]}#/program?code=${await pack(text())}`;
    history.replaceState(null, "", url);
    try {
      await navigator.clipboard.writeText(url);
      say("The link is in the clipboard; whoever opens it sees this program.");
    } catch {
      say("The address of this page is the link.");
    }
  }

  const load = (code: string) => {
    area.value = code;
    editor?.replace(code);
  };
  const picker = h("select", { "aria-label": "Example" }, h("option", {}, "Loading …"));
  const runButton = h("button", { class: "main", onclick: () => void run(), title: "Ctrl+Enter" }, "Run");
  const stopButton = h(
    "button",
    {
      disabled: true,
      onclick: () => {
        stop();
        say("Stopped.");
      },
    },
    "Stop",
  );

  const engineMenu = menu("Engine", engines, engine, (chosen) => {
    engine = chosen;
  });
  // Browsers have no GPU for frames of no origin, in which programs run.
  engineMenu.querySelector("select")?.append(h("option", { disabled: true }, "WebGPU (Training only)"));

  const banner = query.has("code")
    ? h(
        "div",
        { class: "banner", role: "note" },
        "This program came with the link. It runs when you press Run, in a frame that cannot read what this site stores.",
      )
    : false;
  root.append(
    ...(banner ? [banner] : []),
    h(
      "div",
      { class: "bar" },
      picker,
      runButton,
      stopButton,
      h("button", { onclick: () => void share() }, "Share"),
      engineMenu,
    ),
    status,
    h(
      "div",
      { class: "panes" },
      pane,
      h("div", { class: "pane editor" }, h("div", { class: "tabs", role: "tablist" }, ...tabs), body),
    ),
  );
  show("Output");

  async function begin(): Promise<void> {
    const all = await examples();
    const wanted = query.get("example");
    const first = all.find(({ title }) => title === wanted) ?? all[0];
    const groups = [...new Set(all.map(({ group }) => group))];
    picker.replaceChildren(
      ...groups.map((group) =>
        h(
          "optgroup",
          { label: group },
          ...all.flatMap((one, i) =>
            one.group === group ? [h("option", { value: i, selected: one === first }, one.title)] : [],
          ),
        ),
      ),
    );
    picker.onchange = () => load(all[Number(picker.value)]?.code ?? "");
    const code = query.get("code");
    load(
      code === null
        ? (first?.code ?? "")
        : await unpack(code).catch((error) => `// This link holds no program: ${String(error)}\n`),
    );
    const { createEditor } = await import("./editor.js");
    if (isGone) return;
    area.remove();
    editor = createEditor(pane, area.value, () => void run());
    say("Ready. Ctrl+Enter runs the program; Escape, then Tab leaves the editor.");
  }
  begin().catch((error) => say(`The editor could not be loaded: ${String(error)}`, true));

  return () => {
    isGone = true;
    stop();
  };
};
