/** Making elements. */

type Child = Node | string | undefined | false;
type Properties = Readonly<Record<string, unknown>>;

function fill(element: Element, properties: Properties, children: readonly Child[]): void {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== undefined && child !== false));
}

/** An HTML element: attributes, listeners (`onclick`) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  fill(element, properties, children);
  return element;
}

/** An SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, properties, children);
  return element;
}

/** A picture that is as wide as it needs to be where there is room; the label says what it shows. */
export function picture(
  width: number,
  height: number,
  label: string,
  ...children: SVGElement[]
): SVGSVGElement {
  const box = { viewBox: `0 0 ${width} ${height}`, width, height };
  return svg("svg", { ...box, role: "img", "aria-label": label }, ...children);
}

/** A menu with one entry for each value. */
export function menu<T extends string | number>(
  label: string,
  values: readonly T[],
  chosen: T,
  changed: (value: T) => void,
): HTMLLabelElement {
  const select = h(
    "select",
    { onchange: () => changed(values[select.selectedIndex] ?? chosen) },
    ...values.map((value) => h("option", { selected: value === chosen }, String(value))),
  );
  return h("label", {}, label, select);
}

/** A number that the user types or steps through. */
export function amount(
  label: string,
  value: number,
  bounds: { readonly min: number; readonly max: number; readonly step?: number },
  changed: (value: number) => void,
): HTMLLabelElement {
  const input = h("input", {
    type: "number",
    value,
    ...bounds,
    oninput: () => {
      if (input.value !== "" && input.checkValidity()) changed(input.valueAsNumber);
    },
  });
  return h("label", {}, label, input);
}

/** Figures with their names. */
export function facts(rows: readonly (readonly [string, string])[]): HTMLDListElement {
  return h(
    "dl",
    { class: "facts" },
    ...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

const isNumber = (cell: string | number | undefined) => /^[\d.,]+( m?s)?$/.test(String(cell));

/** A table with headings; numbers and times are aligned at the right. */
export function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): HTMLElement {
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "plain" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ...head.map((name, i) =>
            h("th", { scope: "col", class: isNumber(rows[0]?.[i]) && "number" }, name),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        ...rows.map((row) =>
          h("tr", {}, ...row.map((cell) => h("td", { class: isNumber(cell) && "number" }, String(cell)))),
        ),
      ),
    ),
  );
}

/** The colour of a device; neighbours differ clearly, and dark text is readable on all of them. */
export function deviceColour(device: number): string {
  return `hsl(${(device * 137.5) % 360} 62% ${70 + (device % 3) * 6}%)`;
}

/** Bytes as people write them. */
export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

/** Milliseconds as people write them. */
export const formatMs = (ms: number): string =>
  ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(ms < 10 ? 2 : 0)} ms`;
