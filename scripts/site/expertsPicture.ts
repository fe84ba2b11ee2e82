/** The picture of tokens that travel to their experts and back. */

/** What the pictures of the documentation are drawn with. */
export interface Pen {
  readonly svg: (
    title: string,
    width: number,
    height: number,
    rules: readonly string[],
    shapes: readonly string[],
  ) => string;
  readonly rect: (x: number, y: number, wide: number, high: number, attributes: string) => string;
  readonly text: (x: number, y: number, words: string, attributes?: string) => string;
}

/** The expert of every token of two devices; the first two experts are those of device 0. */
const choices = [
  [2, 0, 1, 0, 3, 0],
  [1, 3, 2, 2, 0, 3],
] as const;

const [size, gap, left] = [22, 4, 96];

/** Where a token is: in the order of the text, or of experts. */
function places(device: number) {
  const sorted = choices
    .flatMap((row, from) => row.map((expert, i) => ({ expert, from, i })))
    .filter(({ expert }) => expert >> 1 === device)
    .sort((a, b) => a.expert - b.expert || a.from - b.from);
  return sorted.map((token, place) => ({ ...token, place }));
}

/** Tokens of two devices, coloured by their experts, before and after the all-to-all. */
export function expertsPicture({ svg, rect, text }: Pen): string {
  const y = (device: number) => 44 + device * 108;
  const x = (place: number) => left + place * (size + gap);
  const shapes = [0, 1].flatMap((device) => [
    rect(8, y(device) - 22, 452, 94, 'rx="6" class="frame"'),
    text(18, y(device) + 4, `device ${device}`, 'font-weight="600"'),
    text(18, y(device) + 26, `experts ${2 * device}, ${2 * device + 1}`, 'class="note"'),
    text(x(9) + 10, y(device) + 16, "tokens", 'class="note"'),
    text(x(9) + 10, y(device) + 56, "by expert", 'class="note"'),
    ...(choices[device] ?? []).map((expert, i) =>
      rect(x(i), y(device), size, size, `rx="3" class="k${expert}"`),
    ),
  ]);
  const rules: string[] = [];
  const moving = [0, 1].flatMap((device) =>
    places(device).map(({ expert, from, i, place }) => {
      const name = `e${from}${i}`;
      const move = `translate(${x(place) - x(i)}px, ${y(device) + 40 - y(from)}px)`;
      rules.push(
        `@keyframes ${name} { 0%, 15% { transform: none } 35%, 65% { transform: ${move} } 85%, 100% { transform: none } }`,
      );
      return rect(
        x(i),
        y(from),
        size,
        size,
        `rx="3" class="k${expert}" style="animation: ${name} 8s infinite"`,
      );
    }),
  );
  return svg("Tokens travel to the devices of their experts and back", 470, 240, rules, [
    ...shapes,
    ...moving,
  ]);
}
