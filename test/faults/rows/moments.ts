/** Signals in every phase of a run, devices that are lost, and what surrounds a process. */
import { spawn } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { builtFile } from "../../support/built.js";
import { ended, nodeArguments } from "../../support/cliProcess.js";
import { userEnvironment } from "../../support/environment.js";
import type { FaultArea, FaultContext, FaultRow } from "../row.js";
import { describe, prepare, shardwise, steps, tensors, until } from "./command.js";

const start = (folder: string, args: readonly string[], environment: NodeJS.ProcessEnv = {}) =>
  spawn(process.execPath, [...nodeArguments, ...args], {
    cwd: folder,
    env: { ...userEnvironment, ...environment },
  });

/** How soon signals are answered, in milliseconds. */
const PROMISED = 2000;

interface Moment {
  readonly fault: string;
  readonly signal: NodeJS.Signals;
  /** Prepares more and tells more arguments. */
  readonly args: (folder: string) => readonly string[];
  /** Whether the moment has come. */
  readonly when: (folder: string) => boolean;
  /** How long after that the signal is sent, in milliseconds. */
  readonly later?: number;
}

/** Sends a signal at a moment and says how soon the process is over; on a machine with other work the best of three. */
const answered = ({ fault, signal, args, when, later = 0 }: Moment): FaultRow => ({
  fault,
  sees: /^over within 2 s, exit (SIG\w+|130)/,
  act: async (context) => {
    let seen = "";
    for (let attempt = 0; attempt < 3 && !seen.startsWith("over within"); attempt++) {
      rmSync(join(context.folder, "run"), { recursive: true, force: true });
      const child = start(context.folder, [...prepare(context), ...args(context.folder)]);
      const end = ended(child);
      await until(child, () => when(context.folder));
      await new Promise((resolve) => setTimeout(resolve, later));
      const begin = performance.now();
      child.kill(signal);
      const how = describe(await end);
      const took = performance.now() - begin;
      seen = took <= PROMISED ? `over within 2 s, ${how}` : `over after ${took.toFixed()} ms, ${how}`;
    }
    return seen;
  },
});

const isHeld = (folder: string) => existsSync(join(folder, "run", "run.lock"));
const checkpoints = (folder: string) => {
  const path = join(folder, "run", "checkpoints");
  return existsSync(path) ? readdirSync(path) : [];
};

/** A text of `megabytes` MB whose words are all different, which takes a tokeniser long. */
function writeLongText(folder: string, megabytes: number): void {
  let state = 1;
  const word = () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state.toString(36);
  };
  const part = Array.from({ length: 140_000 }, word).join(" ");
  writeFileSync(join(folder, "long.txt"), Array.from({ length: megabytes }, () => part).join("\n"));
}

const phases: readonly FaultRow[] = [
  answered({
    fault: "SIGINT while a tokeniser is trained",
    signal: "SIGINT",
    args: (folder) => {
      writeLongText(folder, 8);
      return ["--data.source", "long.txt", "--data.tokenizer", "bpe", "--data.vocabSize", "30000"];
    },
    when: isHeld,
    later: 1500,
  }),
  answered({
    fault: "SIGHUP while a long text is read",
    signal: "SIGHUP",
    args: (folder) => {
      writeLongText(folder, 200);
      return ["--data.source", "long.txt", "--data.tokenizer", "bytes"];
    },
    when: isHeld,
    later: 300,
  }),
  answered({
    fault: "SIGTERM while the training step is compiled",
    signal: "SIGTERM",
    args: () => ["--model.numLayers", "48", "--steps", "1000000"],
    when: isHeld,
    later: 2500,
  }),
  answered({
    fault: "SIGTERM while a checkpoint is saved",
    signal: "SIGTERM",
    args: () => ["--checkpointEvery", "1", "--steps", "1000000"],
    when: (folder) => checkpoints(folder).some((name) => name.startsWith(".partial-")),
  }),
  answered({
    fault: "SIGINT after the last checkpoint, while the report is made",
    signal: "SIGINT",
    args: () => ["--steps", "2", "--sample", "100000"],
    when: (folder) => checkpoints(folder).includes("step-00000002"),
  }),
];

/** An engine that loses its first device when the run is evaluated, as often as `FAILING` says. */
function failingEngine(folder: string): string {
  const path = join(folder, "failing.mjs");
  const threads = pathToFileURL(builtFile("src/engines/threads/engine.ts")).href;
  writeFileSync(
    path,
    `import { ThreadsEngine } from ${JSON.stringify(threads)};
let opened = 0;
const fault = { device: 0, kind: "exit", program: "evaluate", step: 0 };
export const createEngine = (options) =>
  new ThreadsEngine(options, opened++ < Number(process.env.FAILING) ? { faults: [fault] } : {});
`,
  );
  return path;
}

const lost = async (context: FaultContext, out: string, failing: number, ...more: string[]) => {
  const [command = "", config = ""] = prepare(context);
  const args = [command, config, "--out", out, "--steps", "8", "--checkpointEvery", "1", "--evalEvery", "4"];
  const engine = ["--engine", failingEngine(context.folder)];
  return describe(
    await ended(start(context.folder, [...args, ...engine, ...more], { FAILING: String(failing) })),
  );
};

const losses: readonly FaultRow[] = [
  {
    fault: "a lost device, with `--max-restarts 2`",
    sees: /^same bits, .*restarting \(1 of 2\) from/s,
    lost: "the steps since the last checkpoint, which are done again",
    act: async (context) => {
      const seen = await lost(context, "run", 1, "--max-restarts", "2");
      await lost(context, "whole", 0);
      const [a, b] = ["run", "whole"].map((name) => readFileSync(tensors(join(context.folder, name))));
      return `${a?.equals(b ?? Buffer.alloc(0)) ? "same bits" : "other bits"}, ${seen}`;
    },
  },
  {
    fault: "a lost device, then `blame`",
    sees: /^exit 1: .*exited with code 0.*see shardwise blame.*\nexit 0: .*device 0/s,
    lost: "the steps since the last checkpoint",
    act: async (context) => {
      const seen = await lost(context, "run", 9);
      return `${seen}\n${await shardwise(context.folder, "blame", "run/flight")}`;
    },
  },
  {
    fault: "a disk that is full when a checkpoint is due, and then has space",
    sees: /^exit 1: .*the disk is full, it needs \d+ bytes.*\nexit 0: .*from step 3/s,
    lost: "the steps since the last checkpoint, which are done again",
    act: async (context) => {
      const args = prepare(context);
      await shardwise(context.folder, ...args, "--steps", "3");
      const again = ["train", "--resume", "--out", "run", "--steps", "12"];
      // A limit on the size of files fails as a full disk does.
      const script = `trap '' XFSZ; ulimit -f 48; exec "$@"`;
      const command = ["-c", script, "sh", process.execPath, ...nodeArguments, ...again];
      const full = spawn("sh", command, { cwd: context.folder, env: userEnvironment });
      return `${describe(await ended(full))}\n${await shardwise(context.folder, ...again)}`;
    },
  },
];

const surroundings: readonly FaultRow[] = [
  {
    fault: "a working directory that is gone",
    sees: /^exit 1: shardwise: .*working directory/,
    act: async ({ folder }) => {
      const main = nodeArguments.at(-1) ?? "";
      const program = `import { mkdirSync, rmdirSync } from "node:fs";
mkdirSync("gone");
process.chdir("gone");
rmdirSync("../gone");
process.argv.splice(1, 1, ${JSON.stringify(main)}, "train");
await import(${JSON.stringify(main)});
`;
      writeFileSync(join(folder, "gone.mjs"), program);
      const child = spawn(process.execPath, [join(folder, "gone.mjs")], {
        cwd: folder,
        env: userEnvironment,
      });
      return describe(await ended(child));
    },
  },
  ...["nohup", "sh"].map(
    (shell): FaultRow => ({
      fault:
        shell === "nohup"
          ? "SIGHUP to a run under `nohup` and a file as output"
          : "SIGHUP to a run of a script under `nohup`",
      sees: /^went on/,
      act: async (context) => {
        const run = [process.execPath, ...nodeArguments, ...prepare(context), "--steps", "1000000"];
        writeFileSync(join(context.folder, "run.sh"), `"$@" & echo $! > pid; wait\n`);
        const line =
          shell === "nohup"
            ? `nohup "$@" > log 2>&1 < /dev/null & echo $! > pid; wait`
            : `nohup sh run.sh "$@" > log 2>&1 < /dev/null`;
        // The shell of users: unlike the smallest ones it tells a command its name.
        const child = spawn("bash", ["-c", line, "bash", ...run], {
          cwd: context.folder,
          env: userEnvironment,
        });
        const end = ended(child);
        await until(child, () => steps(context.folder) > 4);
        const pid = Number(readFileSync(join(context.folder, "pid"), "utf8"));
        const before = steps(context.folder);
        process.kill(pid, "SIGHUP");
        await until(child, () => steps(context.folder) > before + 20);
        const after = steps(context.folder);
        try {
          process.kill(pid, "SIGTERM");
        } catch {
          return "it was ended by the signal";
        }
        await end;
        return after > before + 20 ? "continued" : "it was ended by the signal";
      },
    }),
  ),
  {
    fault: "files of a run that are links to files elsewhere",
    sees: /^the file elsewhere is as it was/,
    act: async (context) => {
      const run = join(context.folder, "run");
      const elsewhere = join(context.folder, "precious.txt");
      writeFileSync(elsewhere, "precious");
      const names = ["metrics.jsonl", "run.lock", "flight", "checkpoints"];
      const said: string[] = [];
      for (const name of names) {
        rmSync(run, { recursive: true, force: true });
        mkdirSync(run);
        symlinkSync(elsewhere, join(run, name));
        said.push(await shardwise(context.folder, ...prepare(context), "--steps", "1"));
      }
      return readFileSync(elsewhere, "utf8") === "precious"
        ? "the file elsewhere is as it was"
        : said.join("\n");
    },
  },
  {
    fault: "`ulimit -v` below what a step needs",
    sees: /^exit 1: (?!.*RangeError).*a step needs .* but a device can have/s,
    act: async (context) => {
      const args = [
        ...prepare(context),
        "--steps",
        "1",
        "--model.width",
        "2048",
        "--model.mlpWidth",
        "65536",
      ];
      const script = `ulimit -v 18000000; exec "$@"`;
      const command = ["-c", script, "sh", process.execPath, ...nodeArguments, ...args];
      return describe(await ended(spawn("sh", command, { cwd: context.folder, env: userEnvironment })));
    },
  },
  {
    fault: "a step that needs more than `--engine.memory`",
    sees: /^exit [12]: .*a step needs .* but a device can have .*--engine\.memory/s,
    act: (context) =>
      shardwise(
        context.folder,
        ...prepare(context),
        "--steps",
        "1",
        "--model.mlpWidth",
        "65536",
        "--engine.memory",
        "4MiB",
      ),
  },
];

/** Moments at which runs end or must not, and what surrounds them. */
export const moments: FaultArea = {
  title: "Moments and surroundings",
  rows: [...phases, ...losses, ...surroundings],
};
