/** The pages of the playground, each loaded when it is opened. */
import { h } from "./dom.js";
import { keepForOffline } from "./offline.js";

/** Builds a page into an element; what it returns ends what the page started. */
export type Page = (view: HTMLElement, query: URLSearchParams) => (() => void) | undefined;

const program = () => import("./programPage.js");
const pages: Readonly<Record<string, () => Promise<{ readonly page: Page }>>> = {
  program,
  functions: () => import("./functionsPage.js"),
  pipelines: () => import("./pipelinesPage.js"),
  training: () => import("./trainingPage.js"),
  digits: () => import("./digitsPage.js"),
};

const view = document.querySelector("main");
let leave: (() => void) | undefined;
let visits = 0;

async function open(): Promise<void> {
  if (!view) return;
  const [, name = "program", query = ""] = /^#\/(\w+)(?:\?(.*))?$/.exec(location.hash) ?? [];
  const visit = ++visits;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leave?.();
  leave = undefined;
  view.replaceChildren(h("p", { class: "status" }, "Loading …"));
  try {
    const { page } = await (pages[name] ?? program)();
    if (visit !== visits) return;
    view.replaceChildren();
    leave = page(view, new URLSearchParams(query));
  } catch (error) {
    if (visit !== visits) return;
    view.replaceChildren(
      h("p", { class: "error", role: "alert" }, `This page could not be loaded: ${String(error)}`),
      h("button", { onclick: () => void open() }, "Try again"),
    );
  }
}

keepForOffline();
addEventListener("hashchange", () => void open());
void open();
