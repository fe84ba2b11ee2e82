/** A picture that moves: what devices hold, frame by frame, and what they send from one frame to the next. */
import { deviceColour, h, svg } from "./dom.js";

/** Something that a device holds; its colour is that of the device it comes from. */
export interface Held {
  readonly text: string;
  readonly from: number;
}

/** A moment: for every device what it holds, and what is sent afterwards. */
export interface Frame {
  readonly caption: string;
  readonly devices: readonly (readonly (Held | undefined)[])[];
  readonly sends?: readonly (readonly [from: number, to: number])[];
}

const [columnWidth, cellHeight, top] = [118, 26, 58];

/** How long a moment is shown, in milliseconds. */
const momentMs = 1600;
const movesLittle = matchMedia("(prefers-reduced-motion: reduce)");

function draw({ devices, sends = [], caption }: Frame, rows: number, isMoving: boolean): SVGSVGElement {
  const x = (device: number) => 14 + device * columnWidth;
  const width = 10 + devices.length * columnWidth;
  const height = top + rows * (cellHeight + 4) + 6;
  const columns = devices.map((cells, device) =>
    svg(
      "g",
      {},
      svg(
        "text",
        { x: x(device) + 45, y: top - 8, "text-anchor": "middle", "font-size": 12 },
        `device ${device}`,
      ),
      ...cells.flatMap((cell, row) => {
        const y = top + row * (cellHeight + 4);
        const frame = svg("rect", {
          x: x(device),
          y,
          width: 90,
          height: cellHeight,
          rx: 4,
          fill: cell ? deviceColour(cell.from) : "none",
          stroke: "var(--line)",
        });
        const text = svg(
          "text",
          { x: x(device) + 45, y: y + 17, "text-anchor": "middle", "font-size": 12, class: "box-text" },
          cell?.text ?? "",
        );
        return [frame, text];
      }),
    ),
  );
  const arcs = sends.flatMap(([from, to]) => {
    const [a, b] = [x(from) + 45, x(to) + 45];
    const lift = Math.min(34, 12 + Math.abs(b - a) / 12);
    const path = `M${a} 40C${a} ${40 - lift} ${b} ${40 - lift} ${b} 40`;
    const line = svg("path", { d: path, class: "message", "marker-end": "url(#arrow)" });
    if (!isMoving) return [line];
    const way = svg("animateMotion", { path, dur: `${momentMs}ms`, fill: "freeze" });
    return [line, svg("circle", { r: 6, fill: deviceColour(from), stroke: "var(--accent)" }, way)];
  });
  const marker = svg(
    "marker",
    { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    svg("path", { d: "M0 0L8 4L0 8z", fill: "var(--accent)" }),
  );
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": caption },
    svg("defs", {}, marker),
    ...arcs,
    ...columns,
  );
}

/** Frames with buttons to go through them, which move by themselves when asked to. */
export function player(frames: readonly Frame[]): { readonly element: HTMLElement; stop(): void } {
  const rows = Math.max(...frames.flatMap(({ devices }) => devices.map((cells) => cells.length)));
  const picture = h("div", {});
  const caption = h("p", { "aria-live": "polite" });
  let at = 0;
  let timer: ReturnType<typeof setInterval> | undefined;
  const show = (frame: number) => {
    at = (frame + frames.length) % frames.length;
    const chosen = frames[at];
    if (!chosen) return;
    picture.replaceChildren(draw(chosen, rows, timer !== undefined && !movesLittle.matches));
    caption.textContent = `${at + 1} of ${frames.length}: ${chosen.caption}`;
  };
  const stop = () => {
    clearInterval(timer);
    timer = undefined;
    play.textContent = "Play";
  };
  const play = h(
    "button",
    {
      onclick: () => {
        if (timer !== undefined) return stop();
        play.textContent = "Pause";
        timer = setInterval(() => show(at + 1), momentMs);
        show(at);
      },
    },
    "Play",
  );
  const turn = (by: number) => () => {
    stop();
    show(at + by);
  };
  const element = h(
    "div",
    {},
    picture,
    caption,
    h(
      "div",
      { class: "bar" },
      h("button", { "aria-label": "Previous moment", onclick: turn(-1) }, "‹"),
      play,
      h("button", { "aria-label": "Next moment", onclick: turn(1) }, "›"),
    ),
  );
  show(0);
  return { element, stop };
}
