import type { Span } from "../workers/record.js";
import { deviceColour, formatMs, picture, svg } from "./dom.js";

const [width, left, rowHeight] = [760, 70, 26];

/** What every device did during one step, a row each: products dark, other kernels lighter, messages light. */
export function timelinePicture(spans: readonly Span[], ms: number): SVGSVGElement {
  const devices = [...new Set(spans.map(({ device }) => device))].sort((a, b) => a - b);
  const scale = (width - left - 8) / Math.max(...spans.map(({ end }) => end), 0.001);
  const rows = devices.map((device, row) => {
    const y = 6 + row * rowHeight;
    const boxes = spans
      .filter((span) => span.device === device)
      .map(({ begin, end, kind, name }) =>
        svg(
          "rect",
          {
            x: left + begin * scale,
            y,
            width: Math.max(0.5, (end - begin) * scale),
            height: rowHeight - 6,
            fill: deviceColour(device),
            "fill-opacity": kind === "gemm" ? 1 : kind === "kernel" ? 0.7 : 0.3,
          },
          svg("title", {}, `${name}, ${((end - begin) * 1000).toFixed(0)} µs`),
        ),
      );
    const label = svg(
      "text",
      { x: left - 8, y: y + 14, "text-anchor": "end", "font-size": 12 },
      `device ${device}`,
    );
    return svg("g", {}, label, ...boxes);
  });
  const title = `What ${devices.length} devices did in a step of ${formatMs(ms)}`;
  return picture(width, 14 + devices.length * rowHeight, title, ...rows);
}
