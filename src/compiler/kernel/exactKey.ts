/** A string that two values share only if they are equal to the last bit; JSON alone loses −0, NaN and infinities. */
export function exactKey(value: object): string {
  return JSON.stringify(value, (_, v: unknown) => {
    if (typeof v !== "number" || (Number.isFinite(v) && !Object.is(v, -0))) return v;
    return Object.is(v, -0) ? "-0" : String(v);
  });
}
