/** Bugs to plant in the key-value store; each must be found, and `storeSeeds.json` says by which seed. */
import type { Mutant } from "../mutants.js";

function inFile(file: string, bugs: readonly (readonly [string, string, string])[]): Mutant[] {
  return bugs.map(([name, from, to]) => ({ name, file: `src/engines/xla/store/${file}`, from, to }));
}

export const storeMutants: readonly Mutant[] = [
  ...inFile("server.ts", [
    [
      "a value that arrives is told to nobody who waits for it",
      "for (const waiter of this.waiting.get(key) ?? []) this.settle(waiter, { ok: true }, value);",
      "",
    ],
    [
      "a process whose connection ends is not lost",
      'if (member?.state === "here") this.end(member, "lost");',
      "",
    ],
    [
      "who asks for a value of a lost process waits for it",
      '(this.members.get(from)?.state ?? "here") !== "here"',
      "false",
    ],
    [
      "who waits for all is told when one is missing",
      "if (this.members.size === this.count) answer(",
      "if (this.members.size >= this.count - 1) answer(",
    ],
    [
      "who waited for all is not told when they have come",
      "for (const waiter of this.forAll) this.settle(waiter, { ok: true, hosts: this.hosts() });",
      "",
    ],
    [
      "a proof is not looked at",
      "if (!isExpectedProof(head.proof, proofOf(this.secret, challenge, head.process))) {",
      "if (Date.now() < 0) {",
    ],
    [
      "requests of those who have not joined are served",
      'else if (member === undefined) answer(failure("invalidArgument", "join first"));',
      "",
    ],
    [
      "process 0 leaves before the others",
      'if (member.process === 0) this.wait(this.forEnd, timeoutMs, answer, "others are still here");\n    else answer({ ok: true });',
      "answer({ ok: true });",
    ],
    [
      "process 0 is let go when the first other one has left",
      'if ([...this.members.values()].some((one) => one.state === "here")) return;',
      "",
    ],
    [
      "a bad message ends the thread of the store",
      "// A peer that sends anything else is not a process of this run.\n        socket.destroy();",
      'throw new Error("bad message");',
    ],
  ]),
  ...inFile("connection.ts", [
    ["a process waits for a store that is silent", "Math.min(allowed, LONGEST_TIMER_MS)", "LONGEST_TIMER_MS"],
    ["a process does not wait until process 0 listens", "if (performance.now() + RETRY_MS > end) {", "{"],
    [
      "requests that are under way when the connection ends are forgotten",
      "for (const id of [...this.waiting.keys()]) this.settle(id, this.lost(this.end));",
      "",
    ],
    [
      "a request after the end of the connection is not answered",
      "else this.settle(id, this.lost(this.end));",
      "",
    ],
  ]),
  ...inFile("messageFrames.ts", [
    [
      "the beginning of a message that comes in pieces is lost",
      "this.chunks = [bytes];",
      "this.chunks = [];",
    ],
  ]),
  ...inFile("openStore.ts", [
    [
      "a value is removed while others may still read it",
      "key: key(index, round - 1)",
      "key: key(index, round)",
    ],
  ]),
  ...inFile("ports.ts", [["a notify too few", "  Atomics.notify(sent, 0);\n", ""]]),
];
