/** The scripts of package.json by purpose: what `npm run help` prints and CONTRIBUTING.md shows as a table. */

/** Scripts for one purpose, each with one line that says what it does. */
export interface Purpose {
  readonly title: string;
  readonly scripts: Readonly<Record<string, string>>;
}

/** All scripts; a test compares them with package.json. */
export const purposes: readonly Purpose[] = [
  {
    title: "Everyday",
    scripts: {
      help: "List all scripts by purpose",
      start: "Build, then train a small language model on bundled text",
      check: "Run everything a change must pass: types, lint, build, package, imports, tests",
      test: "Run the everyday test suite, which ends with `N passed, M failed`",
      "test:long": "Run the tests that search, train on many meshes or start process after process",
      "test:watch": "Run the everyday suite again after every save",
      typecheck: "Check the types of sources, tests, examples, scripts and pages",
      lint: "Check lint rules, formatting and import order; change nothing",
      format: "Format files and sort imports in place",
      floors: "Check that imports only point downwards and that functions stay short",
      build: "Write ES modules, declarations and source maps to dist/",
      example: "Run an example without a build: `-- collectives`",
      explain: "Print the steps and the memory plan of all programs a file runs: `-- examples/fsdp.ts`",
    },
  },
  {
    title: "Tests that need something else",
    scripts: {
      "test:mpi": "Run programs in 2, 4 and 8 processes with every installed MPI",
      "test:hosts": "Train across three network namespaces (root, Open MPI)",
      "test:transformers":
        "Compare models, exports, adapters and tokenisers with Hugging Face's libraries (Python)",
      "test:serve": "Use `shardwise serve` with OpenAI's own client, fetched from npm: 200 clients at once",
      "test:browsers": "Run the engine suite, reference values, training and random programs in browsers",
      "test:browser": "Open a training report in Chromium and save screenshots",
      "test:playground": "Open the playground in Chromium: every example, mistakes, all pages, access",
      "test:nodes": "Run the suite on Node 20 to 26 and a program on Bun and Deno, fetched from npm",
      "test:encodings": "Compare generated machine code with GNU `as`, and run NEON code in an emulator",
      "test:jax": "Compare every exported function, and random programs, with JAX and optax (Python)",
      "test:stablehlo": "Run the output of the xla engine with jaxlib (Python) on simulated devices",
      "test:plan": "Compare the planner's predictions with measured steps (idle machine)",
      "test:published": "Predict published runs on GPUs and write the table of docs/planning.md",
      conformance: "Check a folder of reference values on an engine: `-- test/goldens --engine threads`",
    },
  },
  {
    title: "Exhaustive runs, of which npm test takes a sample",
    scripts: {
      "test:texts": "Run the suite with every pass printed and parsed back",
      "test:meshes": "Take steps on all meshes of 2, 4 and 8 devices, load checkpoints on 56 pairs of meshes",
      "test:everyMesh": "Compare steps on all 56 meshes of 8 devices with one: `-- --engine mpi`",
      "test:pipelines": "Run circular pipelines in every combination of options",
      "test:schedules": "Run every pipeline schedule with 2, 4 and 8 stages",
      "test:cases": "Run all JAX cases of arrays, linear algebra, FFT, convolutions, SciPy and distributions",
      "test:rest": "Run the remaining sampled tests in full: goldens, resumed runs, examples, partitioning",
      "test:mutants": "Change rule tables one place at a time and report changes that no test notices",
      compare: "Compare random programs on engines with the interpreter: `-- --engine mpi --seed 7`",
      explore: "Run the threads engine on a simulated machine under many schedules: `-- --seed 7`",
      "explore:cluster":
        "Train on simulated clusters whose processes, messages, clocks and disks fail: `-- --seed 7`",
      "explore:oneThread":
        "Let simulated pages compute on devices of one worker whose messages are late: `-- --seed 7`",
      "explore:store":
        "Let processes of simulated clusters find each other while connections fail: `-- --seed 7`",
      "explore:turns": "Let what texts of a model and compilers wait for come in every order: `-- --seed 7`",
      litmus: "Run litmus tests of the memory order on threads, and count outcomes: `-- --seconds 10`",
      night: "Run all searches by seed for hours, and write a page: `-- --minutes 60`",
      faults: "Cause about 170 faults in real processes and write docs/faults.md",
      soak: "Train for ten thousand steps and check that memory stays flat",
      "soak:loops": "Run loops without dispose or donate and check that memory stays flat",
    },
  },
  {
    title: "Fuzzing",
    scripts: {
      fuzz: "Compare thousands of random programs, compiled and interpreted",
      "fuzz:partition": "Compare a thousand random programs of each kind, partitioned and on one device",
      "fuzz:kernels": "Compare thousands of random kernels in WebAssembly and machine code, bit by bit",
      "fuzz:attention":
        "Compare random attention on each renderer with float64, and run it between guard pages",
      "fuzz:products": "Run random matrix products in machine code between guard pages",
      "fuzz:surface": "Call every exported function with about 200 malformed sets of arguments",
      "fuzz:readers": "Read millions of changed files and messages, guided by coverage: `-- --minutes 5`",
    },
  },
  {
    title: "Benchmarks",
    scripts: {
      bench: "Run all benchmarks, or some by name: `-- lm`; bench/options.ts lists the options",
      performance: "Write docs/performance.md and its plots from saved measurements",
    },
  },
  {
    title: "Documentation",
    scripts: {
      playground: "Build the playground in site/playground and serve it on this machine",
      docs: "Build the documentation site with search and API reference in site/",
      coverage: "Compare the API with JAX, Flax and optax and write docs/jax.md",
    },
  },
  {
    title: "Package",
    scripts: {
      "lint:package": "Check the built package with publint and are-the-types-wrong",
      "test:package": "Try the packed package: its types, then examples; `-- types` or `-- cnn gpt` chooses",
      "test:bundlers":
        "Bundle the package with every tool of docs/bundlers.md and run the result; `-- bun` chooses",
    },
  },
];

/** How a script is called. */
function callOf(name: string): string {
  return name === "test" || name === "start" ? `npm ${name}` : `npm run ${name}`;
}

/** The list for a terminal. */
export function formatHelp(): string {
  const calls = purposes.flatMap(({ scripts }) => Object.keys(scripts).map(callOf));
  const width = Math.max(...calls.map((call) => call.length));
  const sections = purposes.map(({ title, scripts }) => {
    const lines = Object.entries(scripts).map(([name, line]) => `  ${callOf(name).padEnd(width)}  ${line}`);
    return [title, ...lines].join("\n");
  });
  return sections.join("\n\n");
}

/** The list as a table for Markdown. */
export function formatTable(): string {
  const rows = purposes.flatMap(({ title, scripts }) => [
    `| **${title}** | |`,
    ...Object.entries(scripts).map(([name, line]) => `| \`${callOf(name)}\` | ${line} |`),
  ]);
  return ["| command | what it does |", "| --- | --- |", ...rows].join("\n");
}
