/** Small drawings as SVG files, readable on light and on dark pages; the page's own text explains them. */

const STYLE = [
  "text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328 }",
  ".note { fill: #59636e }",
  ".box { fill: #f6f8fa; stroke: #8c959f }",
  ".a { fill: #ddf4ff; stroke: #0969da }",
  ".b { fill: #fff8c5; stroke: #9a6700 }",
  ".line { stroke: #8c959f; fill: none }",
  "@media (prefers-color-scheme: dark) {",
  "  text { fill: #e6edf3 }",
  "  .note { fill: #9198a1 }",
  "  .box { fill: #21262d; stroke: #768390 }",
  "  .a { fill: #0c2d6b; stroke: #58a6ff }",
  "  .b { fill: #4b2900; stroke: #d29922 }",
  "  .line { stroke: #768390 }",
  "}",
].join("\n    ");

/** What a shape stands for: something plain, or one of two kinds that are told apart by colour. */
export type Tone = "box" | "a" | "b";

const escapeText = (text: string) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** A drawing of the given size. */
export function drawing(title: string, width: number, height: number, shapes: readonly string[]): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img">`,
    `  <title>${escapeText(title)}</title>`,
    `  <style>\n    ${STYLE}\n  </style>`,
    ...shapes.map((shape) => `  ${shape}`),
    "</svg>",
    "",
  ].join("\n");
}

/** A line of text that starts at a point. */
export function label(x: number, y: number, text: string, isNote = false): string {
  return `<text x="${x}" y="${y}"${isNote ? ' class="note"' : ""} xml:space="preserve">${escapeText(text)}</text>`;
}

/** A box with rounded corners. */
export function box(x: number, y: number, width: number, height: number, tone: Tone): string {
  return `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="4" class="${tone}"/>`;
}

/** A straight line. */
export function line(x1: number, y1: number, x2: number, y2: number): string {
  return `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" class="line"/>`;
}

/** The tip of an arrow that points to the left, at a point. */
export function tip(x: number, y: number): string {
  return `<path d="M ${x + 7} ${y - 4} L ${x} ${y} L ${x + 7} ${y + 4}" class="line"/>`;
}
