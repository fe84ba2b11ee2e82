/** A curve that grows while it is drawn. */
import { svg } from "./dom.js";

/** A picture of values by step. */
export class Curve {
  readonly element: SVGSVGElement;
  private readonly values: number[] = [];
  private readonly path = svg("path", { fill: "none", stroke: "var(--accent)", "stroke-width": 1.8 });
  private readonly labels: SVGTextElement[];

  constructor(private readonly title: string) {
    const label = (x: number, y: number, anchor: string) =>
      svg("text", { x, y, "text-anchor": anchor, "font-size": 12, class: "quiet" });
    this.labels = [label(40, 18, "end"), label(40, 196, "end"), label(632, 216, "end")];
    this.element = svg(
      "svg",
      { viewBox: "0 0 640 222", role: "img", "aria-label": title },
      svg("path", { d: "M46 8V198H632", fill: "none", stroke: "var(--line)" }),
      this.path,
      ...this.labels,
    );
  }

  add(value: number): void {
    this.values.push(value);
    const { values } = this;
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const x = (i: number) => 46 + (586 * i) / Math.max(1, values.length - 1);
    const y = (v: number) => 194 - (180 * (v - low)) / (high - low || 1);
    const stride = Math.ceil(values.length / 600);
    const points = values.flatMap((v, i) =>
      i % stride === 0 || i === values.length - 1 ? [`${x(i).toFixed(1)} ${y(v).toFixed(1)}`] : [],
    );
    this.path.setAttribute("d", `M${points.join("L")}`);
    const [top, bottom, right] = this.labels;
    if (top) top.textContent = high.toFixed(2);
    if (bottom) bottom.textContent = low.toFixed(2);
    if (right) right.textContent = `step ${values.length}`;
    this.element.setAttribute(
      "aria-label",
      `${this.title}: ${value.toFixed(3)} after ${values.length} steps`,
    );
  }
}
