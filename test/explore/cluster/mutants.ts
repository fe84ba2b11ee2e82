/** Bugs to plant in what processes do together; each must be found, and `seeds.json` says by which seed. */
import type { Change } from "../load.js";
import type { FaultKind } from "./faults.js";

/** A planted bug. */
export interface Mutant extends Change {
  readonly name: string;
  /** The fault that shows it, where only one does. */
  readonly fault?: FaultKind;
}

type Bug = readonly [name: string, from: string, to: string, fault?: FaultKind];

function inFile(file: string, bugs: readonly Bug[]): Mutant[] {
  return bugs.map(([name, from, to, fault]) => ({
    name,
    file: `src/${file}`,
    from,
    to,
    ...(fault && { fault }),
  }));
}

export const mutants: readonly Mutant[] = [
  // Those that this project once had.
  ...inFile("engines/mpi/failureReport.ts", [
    [
      "a late process is accused of having diverged",
      "lateDevice(recordings);",
      "undefined as never;",
      "stop",
    ],
  ]),
  ...inFile("train/files/checkpoints/checkpointWrite.ts", [
    [
      "the folders above a first checkpoint are not synced",
      "if (before.length === 0) await syncFoldersAbove(files, root);",
      "",
      "power cut",
    ],
  ]),
  // Messages.
  ...inFile("engines/mpi/library/messages.ts", [
    ["messages count as arrived at the first look", "if (this.words[0] === 0) return false;", ""],
  ]),
  ...inFile("engines/mpi/library/tags.ts", [
    [
      "tags do not tell the devices of a process apart",
      "(((use << DEVICE_BITS) | from) << DEVICE_BITS)",
      "((use << DEVICE_BITS) << DEVICE_BITS)",
    ],
  ]),
  ...inFile("engines/mpi/exchange/messageExchange.ts", [
    [
      "a receive has the sequence number of the last collective",
      "tagOf(received[phase] ?? 0, sequence)",
      "tagOf(received[phase] ?? 0, sequence - 1)",
    ],
    [
      "devices of a process do not wait for what others received",
      "this.link.awaitMembers(this.neighbours, WORDS.arrived, this.sequence);",
      "",
    ],
  ]),
  ...inFile("engines/mpi/exchange/links.ts", [
    ["what arrives is used before it has arrived", "this.wait(batch);\n        this.end", "this.end"],
  ]),
  ...inFile("engines/mpi/world.ts", [
    [
      "a text is shared before all have sent theirs",
      "if (entry.batch.isDone()) pending.delete(entry);",
      "if (entry.batch.isDone() || pending.size === 1) pending.delete(entry);",
    ],
  ]),
  ...inFile("engines/mpi/library/calls.ts", [
    [
      "a call is read before it has arrived",
      "if (!message?.batch.isDone()) return undefined;",
      "if (message === undefined) return undefined;",
    ],
  ]),
  ...inFile("engines/mpi/collectives/gathers.ts", [
    ["blocks of other processes come to one place", "staging + slot * stride));", "staging));"],
    [
      "a dense block is received beside its place",
      "target + sender * inner : staging",
      "target + sender * inner + 4 : staging",
    ],
  ]),
  ...inFile("engines/mpi/collectives/reductions.ts", [
    [
      "contributions overwrite each other",
      "exchange.receive(batch, member, PHASE.sources, slots + i * stride, block);",
      "exchange.receive(batch, member, PHASE.sources, slots, block);",
    ],
    ["the parts of a sum are not waited for", "exchange.links.wait(this.second);", ""],
  ]),
  // Agreement.
  ...inFile("engines/mpi/agreement.ts", [
    [
      "the agreement skips a member",
      "this.channel.tell(JSON.stringify(claim), others);",
      "this.channel.tell(JSON.stringify(claim), others.slice(1));",
    ],
    [
      "the agreement waits for one member fewer",
      "missing: new Set(others),",
      "missing: new Set(others.slice(1)),",
      "other program",
    ],
    [
      "what others said before is forgotten",
      "for (const [rank, other] of said ?? []) this.compare(own, rank, other);",
      "",
    ],
    [
      "any fingerprint is taken for the own one",
      "if (own.fingerprint === other.fingerprint) {",
      "if (own.fingerprint.length === other.fingerprint.length) {",
      "other program",
    ],
  ]),
  ...inFile("engines/mpi/engine.ts", [
    [
      "results are read before the others have agreed",
      "Promise.all([outcome, this.agreement.settled()])",
      "Promise.all([outcome])",
      "other program",
    ],
  ]),
  // Failures.
  ...inFile("engines/mpi/failureReport.ts", [
    [
      "a failure report is not answered",
      "if (performance.now() - this.spoken > SILENT_MS) this.tell(",
      "if (performance.now() < 0) this.tell(",
      "stop",
    ],
  ]),
  ...inFile("engines/workers/watchdog.ts", [
    [
      "time in which nobody ran counts towards the deadline",
      "Math.min(now - (this.looked ?? now), 2 * this.interval)",
      "now - (this.looked ?? now)",
      "sleep",
    ],
  ]),
  // Checkpoints and restarts.
  ...inFile("train/files/checkpoints/checkpointWrite.ts", [
    ["files of a checkpoint are not synced", "await file.sync();", "", "power cut"],
    ["the name of a checkpoint is not synced", "await files.syncFolder(root);", "", "power cut"],
    ["the draft of a checkpoint is not synced", "await files.syncFolder(draft);", "", "power cut"],
    [
      "the newest checkpoint is removed as an old one",
      "new Set([written, ...newest.slice(0, keep)",
      "new Set([...newest.slice(1, keep + 1)",
    ],
    [
      "a process leaves out its parts of a checkpoint",
      "own = tensorFiles.filter((_, i) => i % count === index);",
      "own = tensorFiles.filter((_, i) => i % count === index && index === 0);",
    ],
  ]),
  ...inFile("train/files/checkpoints/processGroup.ts", [
    [
      "a failure of one process is not told to the others",
      'if (report && "failed" in report) {',
      "if (report === null) {",
      "full disk",
    ],
  ]),
  ...inFile("train/files/checkpoints/newestSound.ts", [
    [
      "a restart takes an older checkpoint",
      "await checkpoints.list())",
      "[...(await checkpoints.list())].reverse())",
    ],
    ["a restart takes a checkpoint that is damaged", "await checkpoint.verify();", "", "lying disk"],
  ]),
  // Checkpoints that are written while training goes on.
  ...inFile("train/files/checkpoints/checkpoint.ts", [
    ["a save that failed is forgotten", "this.failure ??= { error };", "", "full disk"],
    ["a save is taken for finished before it is written", "await this.writing;", ""],
  ]),
];
