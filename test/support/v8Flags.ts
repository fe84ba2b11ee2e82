/**
 * How V8 runs tests. Programs are many small objects that die young: a larger nursery saves a tenth of the processor's
 * time. Hardly any code of tests runs long enough to pay for the optimising compiler, which takes a third of the
 * processor's time unless it is asked later. From Node 22 on a quicker compiler stands before it, and V8 has no such flag.
 */
export const v8Flags: string[] = [
  "--max-semi-space-size=64",
  ...(process.versions.node.startsWith("20.") ? ["--interrupt-budget=2000000", "--always-sparkplug"] : []),
];
