/** The page on which a network learns digits and names what is drawn by hand. */
import type { FromDigits } from "../workers/digits.js";
import { Curve } from "./curve.js";
import { h } from "./dom.js";
import type { Page } from "./main.js";

const side = 28;

export const page: Page = (root) => {
  const pad = h("canvas", {
    class: "pad",
    width: 224,
    height: 224,
    role: "img",
    "aria-label": "Draw a digit here with the mouse or a finger",
  });
  const context = pad.getContext("2d", { willReadFrequently: true });
  const status = h("div", { class: "status", role: "status" }, "Starting …");
  const answer = h("p", { class: "answer", "aria-live": "polite" });
  const bars = h("div", { class: "chances" });
  const loss = new Curve("Loss");
  const worker = new Worker("digits.js", { type: "module" });
  let isDrawing = false;

  function clear(): void {
    if (!context) return;
    context.fillStyle = "#fff";
    context.fillRect(0, 0, pad.width, pad.height);
    context.lineWidth = 18;
    context.lineCap = "round";
    context.lineJoin = "round";
    answer.textContent = "Draw something.";
    showChances(Array(10).fill(0));
  }

  function showChances(chances: readonly number[]): void {
    const most = Math.max(...chances);
    bars.replaceChildren(
      ...chances.flatMap((chance, digit) => {
        const percent = `${(100 * chance).toFixed(0)} %`;
        const isBest = chance > 0 && chance === most;
        return [
          h("span", { class: isBest && "best" }, String(digit)),
          h("meter", { min: 0, max: 1, value: chance, "aria-label": `Chance of ${digit}` }, percent),
          h("span", { class: isBest && "best" }, percent),
        ];
      }),
    );
  }

  /** What was drawn, moved to the middle and scaled as the network knows digits; undefined for an empty pad. */
  function pixels(): Float32Array | undefined {
    if (!context) return undefined;
    const { data, width, height } = context.getImageData(0, 0, pad.width, pad.height);
    let [left, top, right, bottom] = [width, height, 0, 0];
    for (let p = 0; p < width * height; p++) {
      if ((data[4 * p] ?? 255) > 128) continue;
      const [x, y] = [p % width, Math.floor(p / width)];
      [left, right, top, bottom] = [
        Math.min(left, x),
        Math.max(right, x),
        Math.min(top, y),
        Math.max(bottom, y),
      ];
    }
    if (right < left) return undefined;
    const small = h("canvas", { width: side, height: side }).getContext("2d");
    if (!small) return undefined;
    const [wide, high] = [right - left + 1, bottom - top + 1];
    const scale = 18 / Math.max(wide, high);
    small.fillStyle = "#fff";
    small.fillRect(0, 0, side, side);
    small.drawImage(
      pad,
      left,
      top,
      wide,
      high,
      (side - wide * scale) / 2,
      (side - high * scale) / 2,
      wide * scale,
      high * scale,
    );
    const shrunk = small.getImageData(0, 0, side, side).data;
    return Float32Array.from({ length: side * side }, (_, p) => 1 - (shrunk[4 * p] ?? 255) / 255);
  }

  const at = (event: PointerEvent): [number, number] => {
    const box = pad.getBoundingClientRect();
    return [
      ((event.clientX - box.left) * pad.width) / box.width,
      ((event.clientY - box.top) * pad.height) / box.height,
    ];
  };
  pad.addEventListener("pointerdown", (event) => {
    isDrawing = true;
    pad.setPointerCapture(event.pointerId);
    context?.beginPath();
    context?.moveTo(...at(event));
  });
  pad.addEventListener("pointermove", (event) => {
    if (!isDrawing) return;
    context?.lineTo(...at(event));
    context?.stroke();
  });
  pad.addEventListener("pointerup", () => {
    isDrawing = false;
    const drawn = pixels();
    if (drawn) worker.postMessage({ kind: "name", pixels: drawn });
  });

  worker.onmessage = ({ data }: MessageEvent<FromDigits>) => {
    switch (data.kind) {
      case "step":
        loss.add(data.loss);
        if (data.accuracy !== undefined)
          status.textContent = `Step ${data.step}: names ${(100 * data.accuracy).toFixed(0)} % of digits that it has not seen.`;
        break;
      case "learned":
        status.textContent += " It has finished learning; draw a digit.";
        break;
      case "named":
        answer.textContent = `That is a ${data.chances.indexOf(Math.max(...data.chances))}.`;
        showChances(data.chances);
        break;
      case "failed":
        status.textContent = data.message;
        break;
    }
  };
  worker.onerror = ({ message }) => {
    status.textContent = message || "The worker did not start.";
  };
  root.append(
    h("h2", {}, "Digits"),
    h(
      "p",
      {},
      "A convolutional network learns digits from the fonts of this machine, in a worker of this tab. Draw one while it learns.",
    ),
    h(
      "div",
      { class: "cards" },
      h(
        "div",
        { class: "card draw" },
        h("div", {}, pad, h("button", { onclick: clear }, "Clear")),
        h("div", {}, answer, bars),
      ),
      h("div", { class: "card" }, h("h3", {}, "Loss"), loss.element, status),
    ),
  );
  clear();
  worker.postMessage({ kind: "learn" });
  return () => worker.terminate();
};
