/** Figures of a server in the text format of Prometheus. */

const bounds = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300];

/** Counts durations by their size. */
class Histogram {
  private readonly counts = bounds.map(() => 0);
  private sum = 0;
  private count = 0;

  add(seconds: number): void {
    this.sum += seconds;
    this.count++;
    const place = bounds.findIndex((bound) => seconds <= bound);
    if (place >= 0) this.counts[place] = (this.counts[place] ?? 0) + 1;
  }

  lines(name: string): string[] {
    let total = 0;
    const buckets = bounds.map((bound, i) => {
      total += this.counts[i] ?? 0;
      return `${name}_bucket{le="${bound}"} ${total}`;
    });
    const all = [`${name}_bucket{le="+Inf"} ${this.count}`];
    return [...buckets, ...all, `${name}_sum ${this.sum}`, `${name}_count ${this.count}`];
  }
}

/** What is true of a server at this moment. */
export interface Gauges {
  readonly slots: number;
  readonly active: number;
  readonly waiting: number;
  readonly connections: number;
}

/** Counts what a server does. */
export class ServerMetrics {
  promptTokens = 0;
  generatedTokens = 0;
  cancelled = 0;
  readonly requestSeconds = new Histogram();
  readonly firstTokenSeconds = new Histogram();
  private readonly answers = new Map<string, number>();

  /** Counts an answer. @param path one of few, since each has its own line */
  answered(path: string, status: number): void {
    const labels = `path="${path}",status="${status}"`;
    this.answers.set(labels, (this.answers.get(labels) ?? 0) + 1);
  }

  format({ slots, active, waiting, connections }: Gauges): string {
    const one = (name: string, kind: string, help: string, value: number) =>
      family(name, kind, help, [`shardwise_${name} ${value}`]);
    const histogram = (name: string, help: string, of: Histogram) =>
      family(name, "histogram", help, of.lines(`shardwise_${name}`));
    return [
      family(
        "requests_total",
        "counter",
        "Requests answered.",
        [...this.answers].map(([labels, count]) => `shardwise_requests_total{${labels}} ${count}`),
      ),
      one("prompt_tokens_total", "counter", "Tokens of prompts.", this.promptTokens),
      one("generated_tokens_total", "counter", "Tokens generated.", this.generatedTokens),
      one("cancelled_total", "counter", "Requests whose client disconnected.", this.cancelled),
      one("slots", "gauge", "Texts that can be continued at once.", slots),
      one("texts_active", "gauge", "Texts that are being continued.", active),
      one("texts_waiting", "gauge", "Texts that wait for a slot.", waiting),
      one("connections", "gauge", "Open connections.", connections),
      histogram("first_token_seconds", "Time to the first token of a request.", this.firstTokenSeconds),
      histogram("request_seconds", "Time to the last token of a request.", this.requestSeconds),
    ].join("");
  }
}

function family(name: string, kind: string, help: string, lines: readonly string[]): string {
  const head = [`# HELP shardwise_${name} ${help}`, `# TYPE shardwise_${name} ${kind}`];
  return `${[...head, ...lines].join("\n")}\n`;
}
