/** Which places of the sources run, as V8 counts its blocks. */
import { type Profiler, Session } from "node:inspector";

export class Coverage {
  private readonly session = new Session();
  /** By source, a byte for each character: whether it has run. */
  private readonly known = new Map<string, Uint8Array>();
  /** Characters of the sources that have run. */
  numCovered = 0;

  /** @param isCounted whether the places of a source count */
  constructor(private readonly isCounted: (url: string) => boolean) {
    this.session.connect();
    this.session.post("Profiler.enable");
    this.session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
    this.take();
  }

  /** How many characters ran since the last call that had not run before. @param remembers whether they count as known from now on */
  newPlaces(remembers: boolean): number {
    let count = 0;
    for (const { url, functions } of this.take()) {
      if (!this.isCounted(url)) continue;
      const length = Math.max(...functions.map(({ ranges }) => ranges[0]?.endOffset ?? 0));
      const found = this.known.get(url) ?? new Uint8Array(0);
      const known = found.length >= length ? found : grown(found, length);
      if (remembers) this.known.set(url, known);
      const now = new Uint8Array(length);
      for (const { ranges } of functions)
        for (const { startOffset, endOffset, count: times } of ranges)
          now.fill(times > 0 ? 1 : 0, startOffset, endOffset);
      for (let i = 0; i < length; i++) {
        if (now[i] === 0 || known[i] === 1) continue;
        count++;
        if (remembers) known[i] = 1;
      }
    }
    if (remembers) this.numCovered += count;
    return count;
  }

  close(): void {
    this.session.disconnect();
  }

  private take(): Profiler.ScriptCoverage[] {
    let result: Profiler.ScriptCoverage[] = [];
    // Of a session in the same thread, the answer comes before the call returns.
    this.session.post("Profiler.takePreciseCoverage", (error, taken) => {
      if (error) throw error;
      result = taken.result;
    });
    return result;
  }
}

function grown(bytes: Uint8Array, length: number): Uint8Array {
  const result = new Uint8Array(length);
  result.set(bytes);
  return result;
}
