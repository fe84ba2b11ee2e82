/**
 * Bugs to plant in the protocols of the threads engine, one at a time. Each must be found; `seeds.json` says which
 * scenario and seed find it.
 */
import type { Change } from "./load.js";

/** A planted bug. */
export interface Mutant extends Change {
  readonly name: string;
  /** The files of scenarios that run this code. */
  readonly scenarios: readonly string[];
}

/** Bugs of one file: what is wrong, the text to replace, and what replaces it. */
function inFile(
  file: string,
  scenarios: readonly string[],
  bugs: readonly (readonly [string, string, string])[],
): Mutant[] {
  return bugs.map(([name, from, to]) => ({ name, file: `src/engines/${file}`, from, to, scenarios }));
}

const crew = inFile(
  "protocol/crew.ts",
  ["crew"],
  [
    [
      "dismissed helpers are notified without a change of their word",
      "  Atomics.add(words, WORD.doorbell, 1);\n",
      "",
    ],
    ["helpers are not notified", "  Atomics.notify(words, WORD.doorbell);\n", ""],
    [
      "a job is written while the one before is open",
      "    Atomics.store(words, WORD.claim, first | CLOSED);\n",
      "",
    ],
    [
      "the count of finished parts is cleared after the job opens",
      "    Atomics.store(words, WORD.done, 0);\n    Atomics.store(words, WORD.claim, first);\n",
      "    Atomics.store(words, WORD.claim, first);\n    Atomics.store(words, WORD.done, 0);\n",
    ],
    [
      "a job opens with a plain write",
      "Atomics.store(words, WORD.claim, first);",
      "words[WORD.claim] = first;",
    ],
    [
      "a job opens before it is described",
      "    describe(job);\n    Atomics.store(words, WORD.done, 0);\n    Atomics.store(words, WORD.claim, first);\n",
      "    Atomics.store(words, WORD.done, 0);\n    Atomics.store(words, WORD.claim, first);\n    describe(job);\n",
    ],
    ["jobs have the same number", "this.number + 1) &", "this.number + 0) &"],
    [
      "two threads take the same part",
      "if (Atomics.compareExchange(words, WORD.claim, claim, claim + 1) === claim) return part;",
      "Atomics.store(words, WORD.claim, claim + 1);\n    return part;",
    ],
    [
      "the last helper does not notify the device",
      "Atomics.load(words, WORD.waits) !== 0",
      "Atomics.load(words, WORD.waits) > 1",
    ],
    ["the device does not say that it waits", "    Atomics.store(words, WORD.waits, 1);\n", ""],
    [
      "a helper looks at its doorbell after it looked for a job",
      "    const bell = Atomics.load(words, WORD.doorbell);\n    if (hasNone(memory) && Atomics.load(words, WORD.over) === 0) {\n",
      "    if (hasNone(memory) && Atomics.load(words, WORD.over) === 0) {\n      const bell = Atomics.load(words, WORD.doorbell);\n",
    ],
    [
      "a helper finishes a part before it runs it",
      "      run(part);\n      finish(memory);\n",
      "      finish(memory);\n      run(part);\n",
    ],
    [
      "the device does not wait for the last part",
      "WORD.done) === count) return;",
      "WORD.done) >= count - 1) return;",
    ],
    [
      "finished parts are counted without an atomic operation",
      "const done = Atomics.add(words, WORD.done, 1) + 1;",
      "const done = Atomics.load(words, WORD.done) + 1;\n  Atomics.store(words, WORD.done, done);",
    ],
    ["helpers that are dismissed go back to sleep", " && Atomics.load(words, WORD.over) === 0) {", ") {"],
  ],
);

const signals = inFile(
  "protocol/signals.ts",
  ["collectives", "engine"],
  [
    [
      "a device says that it sleeps after its last look",
      "      Atomics.store(control, this.sleeps, sleep);\n      if (((Atomics.load(words, index) - sequence) | 0) >= 0) break;\n",
      "      if (((Atomics.load(words, index) - sequence) | 0) >= 0) break;\n      Atomics.store(control, this.sleeps, sleep);\n",
    ],
    [
      "a device reads its doorbell after its last look",
      "      this.throwIfAborted();\n      verify?.();\n      Atomics.wait(control, this.doorbell, bell, LONGEST_SLEEP_MS);",
      "      this.throwIfAborted();\n      verify?.();\n      Atomics.wait(control, this.doorbell, Atomics.load(control, this.doorbell) + 0 * bell, LONGEST_SLEEP_MS);",
    ],
    [
      "a device that waits for commands says so after its last look",
      "      Atomics.store(control, this.sleeps, SLEEP.forCommand);\n      if (Atomics.load(control, index) !== value) break;\n",
      "      if (Atomics.load(control, index) !== value) break;\n      Atomics.store(control, this.sleeps, SLEEP.forCommand);\n",
    ],
    ["a device does not say what it sleeps for", "Atomics.store(control, this.sleeps, sleep);", ""],
    [
      "the first of several devices is not woken",
      "for (const device of devices) if",
      "for (const device of devices.slice(1)) if",
    ],
    [
      "device 0 is not told that a command is done",
      "for (let device = 0; device < numDevices; device++) {\n      if",
      "for (let device = 1; device < numDevices; device++) {\n      if",
    ],
    [
      "a wait ends one sequence number too early",
      "    if (((Atomics.load(words, index) - sequence) | 0) >= 0) return;\n    const { listener }",
      "    if (((Atomics.load(words, index) - sequence) | 0) >= -1) return;\n    const { listener }",
    ],
    ["the host is not told of a call", "    reportEvent(this.control);\n", ""],
    ["a call takes the answer of the call before", "WORD.calls, 1) + 1;", "WORD.calls, 1);"],
    [
      "devices do not look whether the engine stops",
      "if (Atomics.load(this.control, ABORT) !== 0)",
      "if (Atomics.load(this.control, ABORT) > 1)",
    ],
  ],
);

const control = inFile(
  "protocol/control.ts",
  ["collectives", "engine"],
  [
    [
      "a doorbell is notified but not changed",
      "  Atomics.add(control, base + WORD.doorbell, 1);\n  Atomics.notify(control, base + WORD.doorbell);\n",
      "  Atomics.notify(control, base + WORD.doorbell);\n",
    ],
    ["a doorbell is changed but not notified", "  Atomics.notify(control, base + WORD.doorbell);\n", ""],
    [
      "whether a device sleeps is read plainly",
      "if (Atomics.load(control, base + WORD.sleeps) !== sleep)",
      "if (control[base + WORD.sleeps] !== sleep)",
    ],
    ["events are not counted", "  Atomics.add(control, EVENTS, 1);\n", ""],
    ["the main thread is not notified of events", "  Atomics.notify(control, EVENTS);\n", ""],
    [
      "device 0 is not woken when the engine stops",
      "for (let device = 0; device < numDevices; device++) {\n    const",
      "for (let device = 1; device < numDevices; device++) {\n    const",
    ],
    [
      "the engine stops after it has woken the devices",
      `  Atomics.store(control, ABORT, 1);
  for (let device = 0; device < numDevices; device++) {
    const doorbell = deviceBase(device) + WORD.doorbell;
    Atomics.add(control, doorbell, 1);
    Atomics.notify(control, doorbell);
  }
`,
      `  for (let device = 0; device < numDevices; device++) {
    const doorbell = deviceBase(device) + WORD.doorbell;
    Atomics.add(control, doorbell, 1);
    Atomics.notify(control, doorbell);
  }
  Atomics.store(control, ABORT, 1);
`,
    ],
  ],
);

const commands = inFile(
  "protocol/commands.ts",
  ["commands"],
  [
    [
      "a command is announced before it is written",
      "    let at = this.tail;\n",
      "    let at = this.tail;\n    Atomics.store(this.control, this.base + WORD.tail, (at + command.length + 1) | 0);\n",
    ],
    [
      "a command is announced with a plain write",
      "Atomics.store(this.control, this.base + WORD.tail, this.tail);",
      "this.control[this.base + WORD.tail] = this.tail;",
    ],
    [
      "commands overwrite those that were not read",
      "used + command.length + 1 > RING_WORDS",
      "used + command.length + 1 > 2 * RING_WORDS",
    ],
    [
      "a command overtakes those that are kept",
      "this.overflow.length > 0 || !this.write(command)",
      "!this.write(command)",
    ],
    [
      "a sleeping device is not told of a command",
      "    ring(this.control, this.device, SLEEP.forCommand);\n",
      "",
    ],
    [
      "a command is given back before it is read",
      "    let at = this.head;\n",
      "    let at = this.head;\n    Atomics.store(signals.control, this.base + WORD.head, Atomics.load(signals.control, this.base + WORD.tail));\n",
    ],
    [
      "a command is kept twice",
      "if (sent > 0) this.overflow.splice(0, sent);",
      "if (sent > 1) this.overflow.splice(0, sent);",
    ],
  ],
);

const collectives = [
  ...inFile(
    "collectives/collectives.ts",
    ["collectives"],
    [
      [
        "a device is ready before its address is there",
        "      link.putAddress(WORDS.source, from);\n      link.putAddress(WORDS.target, to);\n      progress.stamp(sequence);\n      work.signal.ready(sequence);\n",
        "      progress.stamp(sequence);\n      work.signal.ready(sequence);\n      link.putAddress(WORDS.source, from);\n      link.putAddress(WORDS.target, to);\n",
      ],
      ["a collective ends before all have read", "      work.signal.awaitFinished(sequence);\n", ""],
      [
        "a device says that it is done before it is",
        "        work.own(sources, target, receives);\n      }\n      work.signal.finished(sequence);\n",
        "        work.signal.finished(sequence);\n        work.own(sources, target, receives);\n      }\n      if (work.shared) work.signal.finished(sequence);\n",
      ],
      [
        "a device does not wait until its peers are ready",
        "      work.signal.awaitReady(sequence, progress.verifyWait);\n      progress.verifyPeers();\n      link.addressesRead(WORDS.source, sources);\n",
        "      link.addressesRead(WORDS.source, sources);\n",
      ],
      [
        "a copy is overwritten one use too early",
        "work.signal.awaitFinished((sequence - 2) | 0);",
        "work.signal.awaitFinished((sequence - 3) | 0);",
      ],
      [
        "both copies have the same place",
        "kernels.copy(stagingAddress + (sequence & 1) * stride,",
        "kernels.copy(stagingAddress + (sequence & 0) * stride,",
      ],
      [
        "a copy is made after a device is ready",
        "      if (work.isRead) host.kernels.copy(stagingAddress + (sequence & 1) * stride, from, bytes);\n      progress.stamp(sequence);\n      work.signal.ready(sequence);\n",
        "      progress.stamp(sequence);\n      work.signal.ready(sequence);\n      if (work.isRead) host.kernels.copy(stagingAddress + (sequence & 1) * stride, from, bytes);\n",
      ],
    ],
  ),
  ...inFile(
    "collectives/collectiveGroup.ts",
    ["collectives"],
    [
      [
        "progress is written plainly",
        "Atomics.store(this.host.words, this.mine + word, sequence);",
        "this.host.words[this.mine + word] = sequence;",
      ],
      [
        "peers are woken before progress is stored",
        "    Atomics.store(this.host.words, this.mine + word, sequence);\n    this.host.signals.wake(devices);\n",
        "    this.host.signals.wake(devices);\n    Atomics.store(this.host.words, this.mine + word, sequence);\n",
      ],
      [
        "the last to arrive does not wake all",
        "=== 0) signals.wake(members);",
        "=== 0) signals.wake(members.slice(1));",
      ],
      [
        "one fewer arrival is enough",
        "const total = Math.imul(sequence, size);",
        "const total = Math.imul(sequence, size) - 1;",
      ],
      [
        "arrivals are counted without an atomic operation",
        "const count = Atomics.add(words, line + word, 1) + 1;",
        "const count = Atomics.load(words, line + word) + 1;\n      Atomics.store(words, line + word, count);",
      ],
      [
        "those who send are woken instead of those who read",
        "this.tell(WORDS.ready, sequence, readers ?? [])",
        "this.tell(WORDS.ready, sequence, sources ?? [])",
      ],
      [
        "a device waits only for the first peer",
        "for (const i of list) {",
        "for (const i of list.slice(0, 1)) {",
      ],
    ],
  ),
  ...inFile(
    "collectives/desyncDetector.ts",
    ["collectives"],
    [
      [
        "stamps of peers are not compared",
        "reads) if (!this.isHere(member)) this.fail();",
        "reads) if (!this.isHere(member)) void member;",
      ],
      [
        "a peer at another collective is waited for",
        "sequence >= this.sequence)",
        "sequence > this.sequence)",
      ],
      [
        "a new run is published before its progress is cleared",
        "      Atomics.store(words, line + PROGRESS.sequence, 0);\n      Atomics.store(words, line + PROGRESS.run, this.run);\n",
        "      Atomics.store(words, line + PROGRESS.run, this.run);\n      Atomics.store(words, line + PROGRESS.sequence, 0);\n",
      ],
      [
        "devices that leave a run do not say so",
        "Atomics.store(this.host.words, line + PROGRESS.sequence, LEFT);",
        "void line;",
      ],
      [
        "a stale run number is not looked at",
        "stamps.word(member, this.stampAt + STAMP.run) === this.run &&\n",
        "",
      ],
    ],
  ),
];

const devices = [
  ...inFile(
    "devices/deviceLoop.ts",
    ["engine"],
    [
      [
        "the main thread is told before a command counts as done",
        "      Atomics.add(control, this.base + WORD.completed, 1);\n      reportEvent(control);\n",
        "      reportEvent(control);\n      Atomics.add(control, this.base + WORD.completed, 1);\n",
      ],
      [
        "devices that wait for a command of a peer are not woken",
        "      this.signals.wakeFollowers(this.layout.memories.length);\n",
        "",
      ],
      [
        "a copy does not wait for the peer's command",
        "      this.signals.waitForSequence(this.setup.control, word, after, peer, SLEEP.forCompletion);\n",
        "      void word;\n",
      ],
      [
        "a command counts as done before it is",
        "      const later = this.perform(length);\n",
        "      Atomics.add(control, this.base + WORD.completed, 1);\n      const later = this.perform(length);\n      Atomics.sub(control, this.base + WORD.completed, 1);\n",
      ],
      [
        "a diverged device does not say so",
        "void Atomics.store(this.setup.control, this.base + WORD.diverged, communicator + 1),",
        "void communicator,",
      ],
    ],
  ),
  ...inFile(
    "devices/deviceWorker.ts",
    ["engine"],
    [
      [
        "a thread ends without a word",
        "    Atomics.store(setup.control, deviceBase(setup.device) + WORD.state, STATE.gone);\n    reportEvent(setup.control);\n",
        "",
      ],
    ],
  ),
  ...inFile(
    "devices/hostCalls.ts",
    ["engine"],
    [
      [
        "the host is called before its operands are there",
        "    places.slice(0, numOperands).forEach((place, i) => {\n      const address = addressOf(place);\n      area.set(bytes.subarray(address, address + place.bytes), at(offsets, i));\n    });\n    signals.callHost();\n",
        "    signals.callHost();\n    places.slice(0, numOperands).forEach((place, i) => {\n      const address = addressOf(place);\n      area.set(bytes.subarray(address, address + place.bytes), at(offsets, i));\n    });\n",
      ],
    ],
  ),
];

const workers = [
  ...inFile(
    "workers/workerPool.ts",
    ["engine"],
    [
      [
        "the main thread reads the events after it looked at them",
        "      const seen = Atomics.load(this.control, EVENTS);\n      this.answerCalls();\n      if (!this.busy) return;\n      if (!this.collect()) {\n        this.becomeIdle();\n        return;\n      }\n",
        "      this.answerCalls();\n      if (!this.busy) return;\n      if (!this.collect()) {\n        this.becomeIdle();\n        return;\n      }\n      const seen = Atomics.load(this.control, EVENTS);\n",
      ],
      [
        "a blocking main thread reads the events after it looked at them",
        "      Atomics.wait(this.control, EVENTS, seen, LOOK_MS);",
        "      Atomics.wait(this.control, EVENTS, Atomics.load(this.control, EVENTS) + 0 * seen, LOOK_MS);",
      ],
      ["a device is not told of an answer", "      ring(this.control, device, SLEEP.forAnswer);\n", ""],
      [
        "a call is answered before it is made",
        "      try {\n        this.options.answer(",
        "      Atomics.store(this.control, base + WORD.answers, calls);\n      ring(this.control, device, SLEEP.forAnswer);\n      try {\n        this.options.answer(",
      ],
      [
        "finished commands are counted with a plain read",
        "const word = Atomics.load(this.control, deviceBase(device) + WORD.completed);",
        "const word = this.control[deviceBase(device) + WORD.completed] ?? 0;",
      ],
      [
        "pending runs are not told of a failure",
        "for (const { reject } of waiters) reject(error);",
        "void waiters;",
      ],
      ["kept commands are never sent", "      member.writer.flush();\n", ""],
      ["a failure of one device does not end the others", "    this.threads.end();\n", ""],
    ],
  ),
  ...inFile(
    "workers/workersEngine.ts",
    ["engine"],
    [
      [
        "an upload overwrites what a queued run reads",
        "this.pool.completed(worker));\n    if (quiet",
        "Number.POSITIVE_INFINITY);\n    if (quiet",
      ],
      [
        "the source of a copy can be freed",
        "      allocation.readers++;\n      pool.afterwards([{ device: worker, command }], () => from.endRead(allocation));\n",
        "",
      ],
      [
        "an engine that failed hides which device diverged",
        "program && new DesyncError(",
        "program && false && new DesyncError(",
      ],
    ],
  ),
  ...inFile(
    "workers/executable.ts",
    ["engine"],
    [
      [
        "a run does not count as a use of its inputs",
        "for (const allocation of held) allocation.lastUse = sent;",
        "",
      ],
    ],
  ),
  ...inFile(
    "memory/heap.ts",
    ["engine"],
    [
      ["freed memory counts as unused at once", "node.busyUntil = busyUntil;", "node.busyUntil = 0;"],
      [
        "joined blocks forget who uses the second one",
        "Math.max(node.busyUntil, next.busyUntil)",
        "node.busyUntil",
      ],
      [
        "the rest of a split block counts as unused",
        "rest.busyUntil = node.busyUntil;",
        "rest.busyUntil = 0;",
      ],
    ],
  ),
];

export const mutants: readonly Mutant[] = [
  ...crew,
  ...signals,
  ...control,
  ...commands,
  ...collectives,
  ...devices,
  ...workers,
];
