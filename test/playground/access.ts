/**
 * What keeps people from using the page that is open: controls without a name, text that is hard to read, content wider
 * than the screen, and contents that jumped while it was loaded. It runs inside of the page.
 */
export function accessProblems(): string[] {
  const problems: string[] = [];
  const shown = (element: Element) =>
    (element as HTMLElement).offsetParent !== null || element === document.body;
  for (const control of document.querySelectorAll(
    "button, a[href], input, select, textarea, [role=tab], [contenteditable=true]",
  )) {
    if (!shown(control)) continue;
    const labels =
      control instanceof HTMLInputElement || control instanceof HTMLSelectElement
        ? [...(control.labels ?? [])]
        : [];
    const name =
      control.getAttribute("aria-label") ?? control.getAttribute("title") ?? control.textContent ?? "";
    const labelled = labels.map(({ textContent }) => textContent ?? "").join("");
    const isNamed =
      `${control instanceof HTMLSelectElement ? (control.getAttribute("aria-label") ?? "") : name}${labelled}`.trim() !==
      "";
    if (!isNamed) problems.push(`a ${control.tagName.toLowerCase()} has no name`);
  }
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour: string): [number, number, number, number] => {
    if (!canvas) return [0, 0, 0, 1];
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r = 0, g = 0, b = 0, a = 0] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const luminance = ([r, g, b]: readonly number[]) => {
    const part = (value = 0) =>
      value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element: Element): readonly number[] => {
    for (let one: Element | null = element; one; one = one.parentElement) {
      const [r, g, b, a] = rgb(getComputedStyle(one).backgroundColor);
      if (a > 0.9) return [r, g, b];
    }
    return rgb(getComputedStyle(document.body).backgroundColor);
  };
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(
      (node) => node.nodeType === Node.TEXT_NODE && node.textContent?.trim(),
    );
    if (!own || !shown(element) || element.closest("svg, option, [disabled], noscript, .skip")) continue;
    const [a, b] = [luminance(rgb(getComputedStyle(element).color)), luminance(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5)
      problems.push(
        `contrast ${contrast.toFixed(1)} of ${JSON.stringify(element.textContent?.slice(0, 30))}`,
      );
  }
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth)
    problems.push(`the page is ${scrollWidth} wide on a screen of ${clientWidth}`);
  if (!document.documentElement.lang || !document.title) problems.push("the page has no language or title");
  return [...new Set(problems)];
}
