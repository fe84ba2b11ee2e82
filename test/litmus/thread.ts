/** A thread of litmus tests: runs its part of one on many copies of the words, in rounds that all threads begin together. */
import { parentPort, workerData } from "node:worker_threads";
import { CALL_WORDS, writeCallList } from "../../src/compiler/native/callList.js";
import { writeLookLoop } from "../../src/compiler/native/lookLoop.js";
import { ModuleBuilder } from "../../src/compiler/wasm/assembler.js";
import { nativeGemmHere } from "../../src/engines/products/available.js";
import { NativeGemm, targetsOf } from "../../src/engines/products/nativeGemm.js";
import { bindCode, CodeMemory } from "../../src/engines/system/codeMemory.js";
import { loadKoffi } from "../../src/engines/system/koffi.js";
import { allowedCores, pinThread } from "../../src/engines/system/pinning.js";
import { allTests, type Operation } from "./programs.js";
import {
  BASE,
  CONTROL,
  COPIES,
  type Counted,
  LINE,
  type LitmusThreadData,
  REGISTERS,
  type Task,
  VALUES,
  WORDS,
} from "./shared.js";

const { index, memory, control, results } = workerData as LitmusThreadData;
const words = new Int32Array(memory.buffer);

/** Looks at a word before machine code gives up. */
const LOOKS = 3;

/** The operations that are not JavaScript's own; addresses are bytes of the memory. */
interface Tools {
  memcpyIn(at: number, value: number): void;
  memcpyOut(at: number): number;
  listIn(at: number, value: number): void;
  productIn(at: number, value: number): void;
  productOut(at: number): number;
  look(at: number): void;
  wasmIn(at: number, value: number): void;
  wasmOut(at: number): number;
}

function openTools(): Tools {
  const koffi = loadKoffi();
  const code = CodeMemory.open();
  const sets = nativeGemmHere();
  if (koffi === undefined || typeof code === "string" || "unavailable" in sets)
    throw new Error("this machine has no machine code");
  const base = Number(koffi.address(words));
  // What only this thread uses: the three values as operands, and a place for results.
  const own = new Int32Array(new SharedArrayBuffer(4 * 64));
  own.set(VALUES);
  const ownBase = Number(koffi.address(own));
  const libc = koffi.load(null);
  const memcpy = libc.func("memcpy", "void", ["uintptr_t", "uintptr_t", "size_t"]);
  const [callList = 0, lookLoop = 0] = code.load(
    [writeCallList(process.arch), writeLookLoop(process.arch)].filter((one) => one !== undefined),
  );
  const [runList, runLook] = [bindCode(koffi, callList, 3), bindCode(koffi, lookLoop, 6)];
  const list = new BigUint64Array(new SharedArrayBuffer(8 * CALL_WORDS));
  const listBase = Number(koffi.address(list));
  list.set([koffi.address(libc.symbol("memcpy")), 0n, 0n, 4n]);
  const yielding = Number(koffi.address(libc.symbol("sched_yield")));
  const one = {
    transposeA: false,
    transposeB: false,
    m: 1,
    n: 1,
    k: 1,
    lda: 1,
    ldb: 1,
    ldc: 1,
    alpha: 1,
    beta: 0,
  };
  const product = new NativeGemm(code, targetsOf(sets)).prepare("float32", one);
  const wasm = new WebAssembly.Instance(accessModule(), { env: { memory } }).exports as {
    readonly put: (at: number, value: number) => void;
    readonly take: (at: number) => number;
  };
  const RESULT = 32;
  const operand = (value: number) => ownBase + 4 * value;
  return {
    memcpyIn: (at, value) => memcpy(base + at, operand(value), 4),
    memcpyOut: (at) => {
      memcpy(ownBase + 4 * RESULT, base + at, 4);
      return own[RESULT] ?? 0;
    },
    listIn: (at, value) => {
      list[1] = BigInt(base + at);
      list[2] = BigInt(operand(value));
      runList(listBase, 1, ownBase + 4 * (RESULT + 8));
    },
    productIn: (at, value) => product(operand(value), operand(1), base + at),
    productOut: (at) => {
      product(base + at, operand(1), ownBase + 4 * RESULT);
      return own[RESULT] ?? 0;
    },
    look: (at) => runLook(0, 0, base + at, 0, yielding, LOOKS),
    wasmIn: (at, value) => wasm.put(at, VALUES[value] ?? 0),
    wasmOut: (at) => wasm.take(at),
  };
}

/** Functions that write and read a word. */
function accessModule(): WebAssembly.Module {
  const builder = new ModuleBuilder();
  builder.importMemory({ module: "env", name: "memory", shared: true, minimumPages: 0, maximumPages: 65536 });
  builder.function(
    { params: ["i32", "i32"], results: [] },
    (code) => {
      code.get(code.param(0)).get(code.param(1)).memory("i32.store");
    },
    "put",
  );
  builder.function(
    { params: ["i32"], results: ["i32"] },
    (code) => {
      code.get(code.param(0)).memory("i32.load");
    },
    "take",
  );
  return new WebAssembly.Module(builder.toBytes() as Uint8Array<ArrayBuffer>);
}

/** The JavaScript of an operation. @param register where it puts what it reads */
function textOf(operation: Operation, register: number): string {
  const word = `at + ${operation.word * LINE}`;
  const bytes = `4 * (${word})`;
  switch (operation.kind) {
    case "put": {
      const { way, value } = operation;
      if (way === "plain") return `words[${word}] = ${VALUES[value]};`;
      if (way === "atomic") return `Atomics.store(words, ${word}, ${VALUES[value]});`;
      return `tools.${way}In(${bytes}, ${value});`;
    }
    case "take": {
      const { way } = operation;
      if (way === "plain") return `r${register} = words[${word}];`;
      if (way === "atomic") return `r${register} = Atomics.load(words, ${word});`;
      return `r${register} = tools.${way}Out(${bytes});`;
    }
    case "add":
      return `r${register} = Atomics.add(words, ${word}, ${VALUES[1]});`;
    case "pass":
      return `Atomics.store(words, ${word}, r${operation.register});`;
    case "next":
      return `words[${word}] = r${operation.register} + ${VALUES[1]};`;
    case "look":
      return `tools.look(${bytes});`;
  }
}

type Round = (
  words: Int32Array,
  tools: Tools,
  results: Int32Array,
  first: number,
  control: Int32Array,
  numBegun: number,
  numThreads: number,
  delay: number,
) => void;

/** Looks at what the others do before a thread goes on without them: they may have no core at the moment. */
const PATIENCE = 300;

/**
 * One round of a thread: its operations on every copy. All threads begin with a copy at the same time, up to a delay
 * that differs between rounds.
 */
function roundOf(operations: readonly Operation[]): Round {
  let register = 0;
  const lines = operations.map((operation) =>
    textOf(operation, operation.kind === "take" || operation.kind === "add" ? register++ : 0),
  );
  const names = Array.from({ length: REGISTERS }, (_, i) => `r${i}`);
  return new Function(
    "words",
    "tools",
    "results",
    "first",
    "control",
    "numBegun",
    "numThreads",
    "delay",
    `for (let copy = 0; copy < ${COPIES}; copy++) {
      const at = copy * ${WORDS * LINE};
      numBegun = (numBegun + numThreads) | 0;
      Atomics.add(control, ${CONTROL.begun}, 1);
      for (let k = 0; k < ${PATIENCE} && ((Atomics.load(control, ${CONTROL.begun}) - numBegun) | 0) < 0; k++);
      for (let k = 0; k < delay; k++) Atomics.load(control, ${CONTROL.isOver});
      let ${names.map((name) => `${name} = 0`).join(", ")};
      ${lines.join("\n      ")}
      const to = first + copy * ${REGISTERS};
      ${names.map((name, i) => `results[to + ${i}] = ${name};`).join(" ")}
    }`,
  ) as Round;
}

/** Waits until all threads have come. */
function meet(numThreads: number): void {
  const generation = Atomics.load(control, CONTROL.generation);
  if (Atomics.add(control, CONTROL.arrived, 1) + 1 === numThreads) {
    Atomics.store(control, CONTROL.arrived, 0);
    Atomics.add(control, CONTROL.generation, 1);
    Atomics.notify(control, CONTROL.generation);
    return;
  }
  for (let i = 0; i < 3000; i++) if (Atomics.load(control, CONTROL.generation) !== generation) return;
  while (Atomics.load(control, CONTROL.generation) === generation)
    Atomics.wait(control, CONTROL.generation, generation, 1000);
}

const digits = new Map<number, number>(VALUES.map((bits, digit) => [bits, digit]));

/** Adds the outcomes of a round. */
function count(places: readonly number[], counts: Map<number, number>): void {
  for (let copy = 0; copy < COPIES; copy++) {
    let outcome = 0;
    for (const place of places) {
      const digit = digits.get(results[place + copy * REGISTERS] ?? 0) ?? BASE - 1;
      outcome = outcome * BASE + digit;
    }
    counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  }
}

// Each on a core of its own, as far as there are enough.
const cores = allowedCores();
pinThread(cores[index % cores.length] ?? 0);
const tools = openTools();
const rounds = new Map<string, Round>();

function run({ test, thread, ms }: Task): Counted {
  const { threads } = allTests[test] ?? { threads: [] };
  const key = `${test} ${thread}`;
  const round = rounds.get(key) ?? roundOf(threads[thread] ?? []);
  rounds.set(key, round);
  const own = (index: number) => index * COPIES * REGISTERS;
  const places = threads.flatMap((operations, i) =>
    operations
      .filter(({ kind }) => kind === "take" || kind === "add")
      .map((_, register) => own(i) + register),
  );
  const counts = new Map<number, number>();
  const end = performance.now() + ms;
  let delay = 1 + thread;
  let numBegun = 0;
  for (;;) {
    meet(threads.length);
    delay = (Math.imul(delay, 1103515245) + 12345) >>> 0;
    round(words, tools, results, own(thread), control, numBegun, threads.length, delay >>> 26);
    numBegun = (numBegun + COPIES * threads.length) | 0;
    meet(threads.length);
    if (thread === 0) {
      count(places, counts);
      words.fill(0, 0, COPIES * WORDS * LINE);
      Atomics.store(control, CONTROL.isOver, performance.now() > end ? 1 : 0);
      if (performance.now() > end) Atomics.store(control, CONTROL.begun, 0);
    }
    meet(threads.length);
    if (Atomics.load(control, CONTROL.isOver) === 1) return { counts };
  }
}

parentPort?.on("message", (task: Task) => parentPort?.postMessage(run(task)));
parentPort?.postMessage("ready");
