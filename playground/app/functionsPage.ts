/** The functions of `shardwise/parallel`, each with a picture that moves and a program that runs. */
import { h } from "./dom.js";
import type { Page } from "./main.js";
import { player } from "./player.js";
import { stories } from "./stories.js";

export const page: Page = (root) => {
  const players = stories.map(({ frames }) => player(frames));
  root.append(
    h("h2", {}, "Functions of parallel training"),
    h(
      "p",
      {},
      "What devices hold and send, on four devices. A colour is the device or the microbatch that something comes from.",
    ),
    h(
      "div",
      { class: "cards" },
      ...stories.map(({ title, text, program }, i) =>
        h(
          "section",
          { class: "card" },
          h("h3", {}, title),
          h("p", {}, text),
          players[i]?.element,
          h("a", { href: `#/program?example=${program}` }, "Open its program in the editor"),
        ),
      ),
    ),
  );
  return () => {
    for (const { stop } of players) stop();
  };
};
