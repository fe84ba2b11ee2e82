/** Faults of the whole command, each in processes of its own. */
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, openSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Tensor, tree } from "../../../src/index.js";
import { openCheckpoints } from "../../../src/train/index.js";
import { ended, nodeArguments, startShardwise } from "../../support/cliProcess.js";
import { userEnvironment } from "../../support/environment.js";
import type { FaultArea, FaultRow } from "../row.js";
import { damage, describe, manifest, prepare, shardwise, steps, tensors, trained, until } from "./command.js";

/** Sends a signal to a run that goes on for ever, and tells how long it took to end. */
const signalled = (
  fault: string,
  signal: NodeJS.Signals,
  when: (folder: string) => boolean,
  sees: RegExp,
  lost = "nothing",
): FaultRow => ({
  fault,
  sees,
  lost,
  act: async (context) => {
    const args = prepare(context);
    const child = startShardwise(context.folder, [...args, "--steps", "1000000"]);
    const end = ended(child);
    await until(child, () => when(context.folder));
    child.kill(signal);
    return describe(await end);
  },
});

const withDamage = (
  fault: string,
  where: (run: string) => string,
  at: number,
  args: readonly string[],
  sees: RegExp,
): FaultRow => ({
  fault,
  sees,
  act: async (context) => {
    const run = await trained(context);
    damage(where(run), at);
    return shardwise(context.folder, ...args);
  },
});
/** Signals, kills and what a run finds when it starts again. */
export const runs: FaultArea = {
  title: "Runs",
  rows: [
    signalled(
      "SIGINT while training",
      "SIGINT",
      (f) => steps(f) > 4,
      /^exit 130: [\s\S]*stopping after this step[\s\S]*stopped after step \d+/,
    ),
    signalled(
      "SIGTERM while training",
      "SIGTERM",
      (f) => steps(f) > 4,
      /^exit 130: [\s\S]*stopped after step \d+/,
    ),
    signalled(
      "SIGHUP while training",
      "SIGHUP",
      (f) => steps(f) > 4,
      /^exit 130: [\s\S]*stopped after step \d+/,
    ),
    signalled(
      "SIGTERM before the first step",
      "SIGTERM",
      (f) => existsSync(join(f, "run", "run.lock")),
      /^exit (SIGTERM|130)/,
    ),
    signalled(
      "SIGHUP before the first step",
      "SIGHUP",
      (f) => existsSync(join(f, "run", "run.lock")),
      /^exit (SIGHUP|130)/,
    ),
    {
      fault: "SIGKILL while training, then `--resume`",
      sees: /^same bits/,
      lost: "the steps since the last checkpoint, which are done again",
      act: async (context) => {
        const args = prepare(context);
        const whole = ended(
          startShardwise(context.folder, ["train", "c.json", "--out", "whole", "--steps", "60"]),
        );
        const child = startShardwise(context.folder, [...args, "--steps", "60"]);
        const end = ended(child);
        await until(child, () => existsSync(join(context.folder, "run", "checkpoints", "step-00000003")));
        child.kill("SIGKILL");
        await end;
        await whole;
        const resumed = await shardwise(context.folder, "train", "--resume", "--out", "run", "--steps", "60");
        const [a, b] = ["run", "whole"].map((name) => readFileSync(tensors(join(context.folder, name))));
        return a?.equals(b ?? Buffer.alloc(0)) ? "same bits as without the kill" : `other bits: ${resumed}`;
      },
    },
    {
      fault: "SIGUSR2 while training, then `blame`",
      sees: /^exit 0: [\s\S]*SIGUSR2[\s\S]*device 0/,
      act: async (context) => {
        const child = startShardwise(context.folder, [...prepare(context), "--steps", "1000000"]);
        const end = ended(child);
        await until(child, () => steps(context.folder) > 4);
        child.kill("SIGUSR2");
        await until(child, () => existsSync(join(context.folder, "run", "flight", "process-0.json")));
        child.kill("SIGINT");
        await end;
        return shardwise(context.folder, "blame", "run/flight");
      },
    },
    {
      fault: "SIGHUP to a run that `nohup` started",
      sees: /^exit 130: /,
      act: async (context) => {
        const args = [...nodeArguments, ...prepare(context), "--steps", "1000000"];
        // What nohup leaves of a terminal.
        const stdin = openSync("/dev/null", "w");
        const child = spawn(process.execPath, args, {
          cwd: context.folder,
          env: userEnvironment,
          stdio: [stdin, "pipe", "pipe"],
        });
        const end = ended(child);
        await until(child, () => steps(context.folder) > 4);
        const before = steps(context.folder);
        child.kill("SIGHUP");
        await until(child, () => steps(context.folder) > before + 20);
        child.kill("SIGTERM");
        return describe(await end);
      },
    },
    {
      fault: "SIGSTOP for 4 s, then SIGCONT",
      sees: /^exit 130: /,
      act: async (context) => {
        const child = startShardwise(context.folder, [...prepare(context), "--steps", "1000000"]);
        const end = ended(child);
        await until(child, () => steps(context.folder) > 4);
        child.kill("SIGSTOP");
        await new Promise((resolve) => setTimeout(resolve, 4000));
        const before = steps(context.folder);
        child.kill("SIGCONT");
        await until(child, () => steps(context.folder) > before + 10);
        child.kill("SIGINT");
        return describe(await end);
      },
    },
    withDamage(
      "a changed bit in the newest manifest, then `inspect`",
      manifest,
      100,
      ["inspect", "run"],
      /^exit 0: inspect: the checkpoint .*step-00000006 is damaged.*[\s\S]*using .*step-00000003 instead/,
    ),
    withDamage(
      "a changed bit in the newest manifest, then `eval`",
      manifest,
      100,
      ["eval", "run"],
      /^exit 0: eval: the checkpoint .*damaged[\s\S]*using .*step-00000003/,
    ),
    withDamage(
      "a changed bit in the newest tensors, then `generate`",
      tensors,
      -5,
      ["generate", "run", "--length", "2"],
      /^exit 0: generate: the checkpoint .*damaged[\s\S]*using .*step-00000003/,
    ),
    withDamage(
      "a changed bit in the newest manifest, then `--resume`",
      manifest,
      100,
      ["train", "--resume", "--out", "run", "--steps", "7"],
      /^exit 0: skipped a damaged checkpoint: .*step-00000006[\s\S]*from step 3/,
    ),
    withDamage(
      "a changed bit in the newest tensors, then `--resume`",
      tensors,
      -5,
      ["train", "--resume", "--out", "run", "--steps", "7"],
      /^exit 0: skipped a damaged checkpoint[\s\S]*from step 3/,
    ),
    {
      fault: "NaN among the weights, with a right checksum, then `--resume` and `eval`",
      sees: /^exit 1: [\s\S]*tensors are not all finite[\s\S]*remove this checkpoint[\s\S]*exit 1: [\s\S]*\[eval\] the loss/,
      act: async (context) => {
        const run = await trained(context);
        const checkpoints = openCheckpoints(join(run, "checkpoints"));
        const checkpoint = await checkpoints.load(6);
        const { config, data, rng } = checkpoint.manifest;
        const state = await checkpoint.restoreTree<Record<string, unknown>>();
        const spoilt = tree.map(
          (leaf: unknown) =>
            leaf instanceof Tensor && leaf.dtype === "float32" ? leaf.mul(Number.NaN) : leaf,
          state,
        );
        await (await checkpoints.save(7, spoilt, { config, data, rng })).committed;
        const resumed = await shardwise(context.folder, "train", "--resume", "--out", "run", "--steps", "9");
        return `${resumed}\n${await shardwise(context.folder, "eval", "run")}`;
      },
    },
    {
      fault: "two runs into one folder",
      sees: /^exit 2: [\s\S]*is training into run/,
      act: async (context) => {
        const args = prepare(context);
        const child = startShardwise(context.folder, [...args, "--steps", "1000000"]);
        const end = ended(child);
        await until(child, () => existsSync(join(context.folder, "run", "run.lock")));
        const second = await shardwise(context.folder, ...args);
        child.kill("SIGKILL");
        await end;
        return second;
      },
    },
    {
      fault: "`--verify-determinism`",
      sees: /the first step gives the same bits twice/,
      act: (context) =>
        shardwise(context.folder, ...prepare(context), "--steps", "1", "--verify-determinism"),
    },
    {
      fault: "`trace.json` is a link to a file elsewhere",
      sees: /^the file elsewhere is as it was/,
      act: async (context) => {
        const run = join(context.folder, "run");
        mkdirSync(run);
        const elsewhere = join(context.folder, "precious.txt");
        writeFileSync(elsewhere, "precious");
        for (const name of ["trace.json", "report.html", "config.json"])
          symlinkSync(elsewhere, join(run, name));
        const seen = await shardwise(context.folder, ...prepare(context), "--steps", "1");
        return readFileSync(elsewhere, "utf8") === "precious" ? "the file elsewhere is as it was" : seen;
      },
    },
    {
      fault: "a FIFO in place of the lock",
      sees: /run\.lock/,
      act: async (context) => {
        const args = prepare(context);
        mkdirSync(join(context.folder, "run"));
        execFileSync("mkfifo", [join(context.folder, "run", "run.lock")]);
        const child = startShardwise(context.folder, [...args, "--steps", "1"]);
        const timer = setTimeout(() => child.kill("SIGKILL"), 60_000);
        const seen = describe(await ended(child));
        clearTimeout(timer);
        return seen.startsWith("exit SIGKILL") ? "it hangs" : `${seen} (run.lock)`;
      },
    },
  ],
};

const refused = (fault: string, args: readonly string[], sees: RegExp): FaultRow => ({
  fault,
  sees,
  act: (context) => {
    prepare(context);
    return shardwise(context.folder, ...args);
  },
});

/** Command lines and configurations that are refused before anything runs. */
export const commands: FaultArea = {
  title: "Command lines and configurations",
  rows: [
    refused("a misspelt command", ["trian"], /^exit 2: [\s\S]*did you mean train/),
    refused(
      "a misspelt field",
      ["train", "--modle.width", "8"],
      /^exit 2: [\s\S]*did you mean --model.width/,
    ),
    refused("a misspelt axis", ["train", "--mesh", "dta=2"], /^exit 2: [\s\S]*did you mean data/),
    refused(
      "sizes that do not divide",
      ["train", "c.json", "--data.batch", "5", "--model.numHeads", "3"],
      /^exit 2: [\s\S]*data\.batch is 5|^exit 2: [\s\S]*numHeads/,
    ),
    refused(
      "a batch of 2^40 rows",
      ["train", "c.json", "--out", "run", "--data.batch", String(2 ** 40)],
      /^exit [12]: [\s\S]*shardwise: .*use smaller batches/,
    ),
    refused("a configuration that is not there", ["train", "none.json"], /^exit 2: [\s\S]*cannot be read/),
    refused("a folder that is not there", ["eval", "nowhere"], /^exit 2: [\s\S]*there is no folder nowhere/),
    refused(
      "a text that is not there",
      ["train", "c.json", "--out", "run", "--data.source", "none.txt"],
      /^exit [12]: [\s\S]*none\.txt/,
    ),
    refused(
      "a mesh of 100,000 devices",
      ["train", "c.json", "--out", "run", "--mesh", "data=100000"],
      /^exit [12]: shardwise: /,
    ),
    refused(
      "a negative number of restarts",
      ["train", "c.json", "--max-restarts", "-1"],
      /^exit 2: [\s\S]*max-restarts/,
    ),
    refused("an engine that is not there", ["train", "c.json", "--engine", "warp"], /^exit 2: [\s\S]*warp/),
    refused(
      "a recording that is not there",
      ["blame", "none.json"],
      /^exit 1: [\s\S]*no such file or folder/,
    ),
    {
      fault: "a configuration of 100,000 levels",
      sees: /^exit 2: [\s\S]*configuration/,
      act: async (context) => {
        prepare(context);
        writeFileSync(
          join(context.folder, "deep.json"),
          `{"model":${'{"a":'.repeat(1e5)}1${"}".repeat(1e5)}}`,
        );
        return shardwise(context.folder, "train", "deep.json");
      },
    },
    {
      fault: "a configuration that is not JSON",
      sees: /^exit 2: [\s\S]*is not JSON/,
      act: (context) => {
        writeFileSync(join(context.folder, "bad.json"), "{");
        return shardwise(context.folder, "train", "bad.json");
      },
    },
    {
      fault: "standard output that is full",
      sees: /^exit 1: [\s\S]*standard output could not be written/,
      act: async (context) => {
        const child = spawn(process.execPath, [...nodeArguments, "help"], {
          cwd: context.folder,
          env: userEnvironment,
          stdio: ["ignore", openSync("/dev/full", "w"), "pipe"],
        });
        return describe(await ended(child));
      },
    },
  ],
};
