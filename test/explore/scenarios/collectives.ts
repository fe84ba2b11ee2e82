/** Devices exchange values in collectives, and find out when they have diverged. */
import type { CollectiveSpec } from "../../../src/compiler/steps.js";
import {
  type PreparedCollective,
  planStaging,
  prepareCollective,
} from "../../../src/engines/collectives/collectives.js";
import { blockOf, newCollectiveWords, WORDS } from "../../../src/engines/collectives/collectiveWords.js";
import {
  communicatorsOf,
  DesyncDetector,
  Diverged,
} from "../../../src/engines/collectives/desyncDetector.js";
import { instantiateMoveKernels } from "../../../src/engines/collectives/moveKernels.js";
import { connectPeers } from "../../../src/engines/collectives/peers.js";
import { FlightRecorder, newFlightRing } from "../../../src/engines/flight/recorder.js";
import type { LayoutKind, MemoryLayout } from "../../../src/engines/memory/memoryLayout.js";
import { abortAll, newControl } from "../../../src/engines/protocol/control.js";
import { allHere } from "../../../src/engines/protocol/locations.js";
import { Aborted, Signals } from "../../../src/engines/protocol/signals.js";
import { range } from "../../../src/ir/shape.js";
import { label, mayRace } from "../runtime.js";
import { type Scenario, type ScenarioRun, same } from "../scenario.js";

/** What a device does with its collectives: starts and ends one after the other, or several at once. */
interface Plan {
  readonly numDevices: number;
  readonly crowded: boolean;
  readonly layout: LayoutKind;
  readonly specs: readonly CollectiveSpec[];
  /** The collectives of each run, for each device; those in an inner list are started before any of them ends. */
  readonly runs: (device: number) => readonly (readonly (readonly number[])[])[];
  /** Whether the devices diverge. */
  readonly diverges?: boolean;
  /** Whether to copy sources aside even where that does not pay. */
  readonly stages: boolean;
}

/** The memory of a device: two collectives can be under way at once. */
const PART = { source: 0, target: 128, scratch: 384, staging: 1024, size: 2048 } as const;

export function specOf(
  kind: CollectiveSpec["kind"],
  numDevices: number,
  more: Partial<CollectiveSpec> = {},
): CollectiveSpec {
  const elements = kind === "reduceScatter" || kind === "allToAll" ? numDevices : 1;
  return {
    kind,
    combine: "sum",
    dtype: "int32",
    axes: [],
    groups: [range(numDevices)],
    size: numDevices,
    source: { slot: 0, offset: 0 },
    target: { slot: 0, offset: 0 },
    elements,
    outer: 1,
    inner: 1,
    permutation: [],
    info: 0,
    ...more,
  };
}

/** What a device sends: different for all devices, uses and elements. */
function elementOf(device: number, use: number, element: number): number {
  return 1 + device + 10 * element + 100 * use;
}

/** What the collective gives a device. */
function resultOf(spec: CollectiveSpec, device: number, use: number): number[] {
  const group = spec.groups.find((members) => members.includes(device)) ?? [];
  const me = group.indexOf(device);
  const sum = (element: number) => group.reduce((all, member) => all + elementOf(member, use, element), 0);
  switch (spec.kind) {
    case "allReduce":
      return range(spec.elements).map(sum);
    case "reduceScatter":
      return [sum(me)];
    case "allGather":
      return group.map((member) => elementOf(member, use, 0));
    case "allToAll":
      return group.map((member) => elementOf(member, use, me));
    case "permute": {
      const pair = spec.permutation.find(([, to]) => to === me);
      if (pair) return [elementOf(group[pair[0]] ?? 0, use, 0)];
      return spec.unset ? [] : [0];
    }
  }
}

function newLayout(numDevices: number, kind: LayoutKind): MemoryLayout {
  const numMemories = kind === "shared" ? 1 : numDevices;
  // Only the buffer of a memory is used here.
  const memories = range(numMemories).map(() => {
    const buffer = new SharedArrayBuffer((PART.size * numDevices) / numMemories);
    label(new Int32Array(buffer), "memory");
    return { buffer } as unknown as WebAssembly.Memory;
  });
  return {
    kind,
    addressType: "i32",
    memories: range(numDevices).map(
      (device) => memories[device % numMemories] ?? { buffer: new ArrayBuffer(0) },
    ),
    bases: range(numDevices).map((device) => (kind === "shared" ? device * PART.size : 0)),
    bytes: PART.size,
  } as MemoryLayout;
}

/** A device that runs its part of the plan. */
class SimulatedDevice {
  readonly detector: DesyncDetector;
  readonly collectives: readonly PreparedCollective[];
  private readonly words: Int32Array;
  private readonly base: number;
  /** What tells the uses of each collective apart: the run, and how often it was used in it. */
  private readonly uses: number[];

  constructor(
    private readonly plan: Plan,
    private readonly device: number,
    control: Int32Array,
    words: Int32Array,
    layout: MemoryLayout,
    diverged: () => void,
  ) {
    const { specs, numDevices, crowded } = plan;
    const memory = layout.memories[device] as WebAssembly.Memory;
    this.words = new Int32Array(memory.buffer);
    this.base = layout.bases[device] ?? 0;
    this.uses = specs.map(() => 0);
    const recorder = new FlightRecorder(newFlightRing(4), () => 1);
    this.detector = new DesyncDetector(
      { program: 1, words, position: device, numPositions: numDevices, recorder, diverged },
      specs,
    );
    const kernels = instantiateMoveKernels({}, memory);
    const host = {
      signals: new Signals(control, device, crowded),
      words,
      position: device,
      locations: allHere(range(numDevices)),
      kernels,
      memory,
      peers: connectPeers(layout, device, kernels),
      scratch: this.base + PART.scratch,
      desyncDetector: this.detector,
    };
    const staging = planStaging(specs, true);
    this.collectives = specs.map((spec, i) =>
      prepareCollective(
        spec,
        i,
        host,
        plan.stages ? this.base + PART.staging + (staging.offsets[i] ?? 0) : undefined,
      ),
    );
  }

  run(): void {
    for (const [number, run] of this.plan.runs(this.device).entries()) {
      this.uses.fill(10 * number);
      this.detector.beginRun();
      for (const group of run) this.exchange(group);
      this.detector.endRun();
    }
  }

  /** Starts some collectives, ends them and looks at their results; then nobody may touch their memory any more. */
  private exchange(group: readonly number[]): void {
    for (const index of group) this.start(index);
    for (const index of group) this.collectives[index]?.work();
    for (const index of group) this.collectives[index]?.settle();
    for (const index of group) {
      const spec = this.plan.specs[index] as CollectiveSpec;
      const target = this.at(PART.target, index);
      const expected = resultOf(spec, this.device, this.uses[index] ?? 0);
      const actual = expected.map((_, i) => this.words[target + i]);
      same(actual, expected, `device ${this.device}, ${spec.kind} ${index}, use ${this.uses[index]}`);
      for (let i = 0; i < expected.length; i++) this.words[target + i] = -1;
    }
  }

  private start(index: number): void {
    const spec = this.plan.specs[index] as CollectiveSpec;
    const use = (this.uses[index] ?? 0) + 1;
    this.uses[index] = use;
    const source = this.at(PART.source, index);
    for (let i = 0; i < spec.elements; i++) this.words[source + i] = elementOf(this.device, use, i);
    this.collectives[index]?.start(4 * source, 4 * this.at(PART.target, index));
  }

  private at(part: number, index: number): number {
    return (this.base + part + 64 * index) / 4;
  }
}

function exchange(plan: Plan): () => ScenarioRun {
  return () => {
    const { numDevices, specs, diverges = false } = plan;
    const control = newControl(numDevices);
    const { count } = communicatorsOf(specs);
    const words = newCollectiveWords(specs.length, count, numDevices);
    label(control, "control");
    label(words, "words");
    // A device that waits compares the stamps of peers that may write them at that time.
    for (const index of range(specs.length)) {
      for (const device of range(numDevices)) {
        const block = blockOf(index, numDevices, device);
        for (let i = 0; i < 4; i++) mayRace(words, block + WORDS.stamps + i);
      }
    }
    const layout = newLayout(numDevices, plan.layout);
    let numDiverged = 0;
    const device = (number: number) => () => {
      const diverged = () => {
        numDiverged++;
      };
      const own = new SimulatedDevice(plan, number, control, words, layout, diverged);
      try {
        own.run();
      } catch (error) {
        if (!diverges || !(error instanceof Diverged || error instanceof Aborted)) throw error;
        // The main thread does so when it hears of it.
        if (error instanceof Diverged) abortAll(control, numDevices);
      }
    };
    const threads = Object.fromEntries(
      range(numDevices).map((number) => [`device ${number}`, device(number)]),
    );
    const check = () => {
      if (diverges) same(numDiverged > 0, true, "some device finds that devices have diverged");
      else same(numDiverged, 0, "devices that diverged");
    };
    return { threads, check, timeoutsAreExpected: diverges };
  };
}

const ring = (n: number): Partial<CollectiveSpec> => ({
  permutation: range(n).map((i) => [i, (i + 1) % n] as const),
});
const message = (from: number, to: number): Partial<CollectiveSpec> => ({
  permutation: [[from, to]],
  unset: true,
});

const base = { crowded: false, layout: "shared", stages: false } as const;
/** The same collectives on all devices. */
const all = (...runs: readonly (readonly (readonly number[])[])[]) => ({ runs: () => runs });

export const scenarios: readonly Scenario[] = [
  {
    name: "collectives: a message, staged",
    isSmall: true,
    setUp: exchange({
      ...base,
      numDevices: 2,
      crowded: true,
      stages: true,
      specs: [specOf("permute", 2, message(0, 1))],
      ...all([[0]]),
    }),
  },
  {
    name: "collectives: one allReduce, two devices, staged",
    isSmall: true,
    setUp: exchange({
      ...base,
      numDevices: 2,
      crowded: true,
      stages: true,
      specs: [specOf("allReduce", 2)],
      ...all([[0]]),
    }),
  },
  {
    name: "collectives: allReduce twice, two devices, in place",
    isSmall: true,
    setUp: exchange({ ...base, numDevices: 2, specs: [specOf("allReduce", 2)], ...all([[0], [0]]) }),
  },
  {
    name: "collectives: allReduce three times, two devices, staged",
    isSmall: true,
    setUp: exchange({
      ...base,
      numDevices: 2,
      stages: true,
      specs: [specOf("allReduce", 2)],
      ...all([[0], [0], [0]]),
    }),
  },
  {
    name: "collectives: messages down a pipeline, staged",
    isSmall: true,
    setUp: exchange({
      ...base,
      numDevices: 2,
      stages: true,
      specs: [specOf("permute", 2, message(0, 1))],
      ...all([[0], [0], [0]]),
    }),
  },
  {
    name: "collectives: all kinds, three devices that share cores",
    setUp: exchange({
      ...base,
      numDevices: 3,
      crowded: true,
      specs: [specOf("allReduce", 3), specOf("allGather", 3)],
      ...all([[0], [1]], [[0, 1]]),
    }),
  },
  {
    name: "collectives: all kinds, three devices with memories of their own",
    setUp: exchange({
      ...base,
      numDevices: 3,
      layout: "separate",
      specs: [specOf("reduceScatter", 3), specOf("allToAll", 3)],
      ...all([[0], [1]], [[0, 1]]),
    }),
  },
  {
    name: "collectives: rings and staged sums, four devices",
    setUp: exchange({
      ...base,
      numDevices: 4,
      stages: true,
      crowded: true,
      specs: [specOf("permute", 4, ring(4)), specOf("allReduce", 4)],
      ...all([[0], [1], [0]], [[0, 1]]),
    }),
  },
  {
    name: "collectives: two groups of two devices",
    setUp: exchange({
      ...base,
      numDevices: 4,
      specs: [
        specOf("allReduce", 2, {
          groups: [
            [0, 1],
            [2, 3],
          ],
        }),
        specOf("allReduce", 2, {
          groups: [
            [0, 2],
            [1, 3],
          ],
        }),
      ],
      ...all([[0], [1], [0, 1]]),
    }),
  },
  {
    name: "collectives: a device leaves the run early",
    setUp: exchange({
      ...base,
      numDevices: 2,
      specs: [specOf("allReduce", 2)],
      runs: (device) => [[[0], [0]], device === 1 ? [] : [[0]]],
      diverges: true,
    }),
  },
  {
    name: "collectives: devices come to different collectives",
    setUp: exchange({
      ...base,
      numDevices: 3,
      crowded: true,
      specs: [specOf("allReduce", 3), specOf("allGather", 3)],
      runs: (device) => [[[0], [device === 1 ? 1 : 0]]],
      diverges: true,
    }),
  },
  {
    name: "collectives: a device skips a staged collective of an earlier run",
    setUp: exchange({
      ...base,
      numDevices: 2,
      stages: true,
      specs: [specOf("allReduce", 2)],
      runs: (device) => (device === 1 ? [[[0]], [], [[0]]] : [[[0]], [[0]], [[0]]]),
      diverges: true,
    }),
  },
];
