import { execFile } from "node:child_process";
import { connect, createServer } from "node:net";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { findProcesses } from "../../src/engines/xla/processes.js";
import { StoreConnection } from "../../src/engines/xla/store/connection.js";
import { type StoreAnswer, type StoreRequest, statuses } from "../../src/engines/xla/store/messageFrames.js";
import { ProcessStore } from "../../src/engines/xla/store/open.js";
import { StoreServer } from "../../src/engines/xla/store/server.js";
import { range } from "../../src/ir/shape.js";
import { nodeProgram } from "../support/built.js";
import { withoutChoices } from "../support/environment.js";
import { bothOf, compiler, describeWith, koffi } from "../support/optional.js";
import { buildFakePlugin } from "./fakePlugin.js";

/** Longer than all processes of a test need for what they ask of the store. */
const HOLD_MS = 500;

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" && address !== null ? address.port : 0;
}

/** Runs processes together and gives what each of them printed. */
async function together(count: number, plugin: string, ...mode: string[]): Promise<unknown[]> {
  const coordinator = `127.0.0.1:${await freePort()}`;
  const args = [...nodeProgram("test/fixtures/xlaProcess.ts"), plugin];
  const run = (index: number) =>
    new Promise<unknown>((resolve) => {
      const env = {
        ...withoutChoices,
        SHARDWISE_COORDINATOR: coordinator,
        SHARDWISE_PROCESS_INDEX: String(index),
        SHARDWISE_PROCESS_COUNT: String(count),
      };
      execFile(process.execPath, [...args, ...mode], { env, timeout: 60_000 }, (error, stdout, stderr) => {
        const line = stdout.trim();
        resolve(line === "" ? { error: stderr, code: error?.code ?? 0 } : JSON.parse(line));
      });
    });
  return Promise.all(range(count).map(run));
}

describeWith(bothOf(compiler, koffi), "processes with a plug-in each", ([, loaded]) => {
  const fake = buildFakePlugin(loaded);

  const expected = range(2).map((index) => ({
    process: { index, count: 2 },
    addressable: [index],
    places: [0, 1],
    host: hostname(),
    shared: [
      ["first of 0", "first of 1"],
      ["second of 0", "second of 1"],
    ],
    result: [index, 7],
  }));

  test("find each other through the store, see all devices and run programs on their own", async () => {
    expect(await together(2, fake.path)).toEqual(expected);
  });

  test("go on after process 0 has done its part, when they are late by a second", async () => {
    const steps = ["share again", "run"];
    const seen = await Promise.all(steps.map((step) => together(2, fake.path, "late", step)));
    expect(seen).toEqual(steps.map(() => expected));
  });

  test("are told which key nobody put, and which process has ended", async () => {
    const [silent, left, failed] = await Promise.all([
      together(2, fake.path, "silent"),
      together(2, fake.path, "leave"),
      together(2, fake.path, "fail"),
    ]);
    // The second one to give up may find that the first has ended.
    expect(silent).toContainEqual({
      error: expect.stringMatching(
        /no process has put "client 0: topology\/\d" within 1\.5 s: all 2 processes/,
      ),
    });
    expect(left).toEqual([
      { error: expect.stringMatching(/process 1 on .* has ended/) },
      { error: "", code: 0 },
    ]);
    expect(failed).toEqual([
      { error: expect.stringMatching(/process 1 on .* is lost/) },
      { error: "", code: 1 },
    ]);
  });
});

describe("the store", () => {
  const join = (process: number, count = 2) =>
    ({ kind: "join", process, count, host: `host${process}` }) as const;

  async function withServer(use: (open: () => Promise<StoreConnection>, port: number) => Promise<void>) {
    const server = new StoreServer(2);
    await server.listen(0, "127.0.0.1");
    const connections: StoreConnection[] = [];
    try {
      await use(async () => {
        const connection = await StoreConnection.open("127.0.0.1", server.port, 1000);
        connections.push(connection);
        return connection;
      }, server.port);
    } finally {
      for (const connection of connections) connection.close();
      server.close();
    }
  }

  test("keeps values that are written once, lets readers wait, and forgets what is removed", async () => {
    await withServer(async (open) => {
      const [a, b] = [await open(), await open()];
      expect((await b.ask({ kind: "tryGet", key: "k" })).head).toMatchObject({
        ok: false,
        reason: "join first",
      });
      await a.ask(join(0));
      const members = a.ask({ kind: "members", timeoutMs: 5000 });
      await b.ask(join(1));
      expect((await members).head).toEqual({ ok: true, hosts: ["host0", "host1"] });
      const waiting = a.ask({ kind: "get", key: "k", timeoutMs: 5000 });
      const value = Uint8Array.from(range(300_000).map((i) => i % 251));
      await b.ask({ kind: "put", key: "k" }, value);
      expect(Buffer.compare((await waiting).value, value)).toBe(0);
      expect((await a.ask({ kind: "put", key: "k" })).head).toMatchObject({ status: statuses.alreadyExists });
      await a.ask({ kind: "remove", key: "k" });
      expect((await a.ask({ kind: "tryGet", key: "k" })).head).toMatchObject({ status: statuses.notFound });
    });
  });

  test("says who never joined and who has ended", async () => {
    await withServer(async (open) => {
      const a = await open();
      await a.ask(join(0));
      expect((await a.ask({ kind: "get", key: "k", timeoutMs: 20 })).head).toEqual({
        ok: false,
        status: statuses.deadlineExceeded,
        reason: 'no process has put "k" within 0.02 s: process 1 of 2 never joined',
      });
      const b = await open();
      await b.ask(join(1));
      b.close();
      await expect
        .poll(async () => (await a.ask({ kind: "get", key: "k", timeoutMs: 20 })).head)
        .toMatchObject({ reason: expect.stringContaining("process 1 on host1 is lost") });
    });
  });

  test("lets process 0 end last: when the others have left or are lost, or after its deadline", async () => {
    await withServer(async (open) => {
      const [a, b] = [await open(), await open()];
      await a.ask(join(0));
      await b.ask(join(1));
      expect((await a.ask({ kind: "leave", timeoutMs: 20 })).head).toEqual({
        ok: false,
        status: statuses.deadlineExceeded,
        reason: "others are still here within 0.02 s: process 0 on host0 has ended",
      });
      const left = a.ask({ kind: "leave", timeoutMs: 60_000 });
      b.close();
      expect((await left).head).toEqual({ ok: true });
    });
  });

  /** The requests of a process from its first to its last, as an engine and a plug-in make them. */
  const requests = (process: number, count: number): readonly StoreRequest[] => {
    const timeoutMs = 60_000;
    const others = range(count);
    const get = (key: string, from: number) =>
      ({ kind: "get", key: `${key} ${from}`, timeoutMs, from }) as const;
    return [
      join(process, count),
      { kind: "members", timeoutMs },
      { kind: "put", key: `share 0 ${process}` },
      ...others.map((from) => get("share 0", from)),
      { kind: "put", key: `share 1 ${process}` },
      ...others.map((from) => get("share 1", from)),
      { kind: "remove", key: `share 0 ${process}` },
      { kind: "tryGet", key: "share 1 0" },
      { kind: "leave", timeoutMs },
    ];
  };

  /**
   * Runs processes of which one is held up before it sends its request of this number, or before it takes the answer.
   * Process 0 ends as processes do: all connections of the store end with it, at once.
   */
  async function runHeld(
    count: number,
    held: { process: number; request: number; at: "sending" | "answer" },
  ) {
    const server = new StoreServer(count);
    await server.listen(0, "127.0.0.1");
    const run = async (process: number) => {
      const connection = await StoreConnection.open("127.0.0.1", server.port, 60_000);
      const answers: StoreAnswer[] = [];
      for (const [request, head] of requests(process, count).entries()) {
        const isHeld = process === held.process && request === held.request;
        if (isHeld && held.at === "sending") await sleep(HOLD_MS);
        const answered = connection.ask(head);
        if (isHeld && held.at === "answer") await sleep(HOLD_MS);
        answers.push((await answered).head);
      }
      if (process === 0) server.close();
      connection.close();
      return answers;
    };
    return Promise.all(range(count).map(run));
  }

  test("answers all processes to their end, whichever of them is late at whichever step", async () => {
    const count = 3;
    const steps = range(requests(0, count).length);
    const cases = range(count).flatMap((process) =>
      steps.flatMap((request) => (["sending", "answer"] as const).map((at) => ({ process, request, at }))),
    );
    expect(cases.length).toBe(2 * count * 13);
    await Promise.all(
      cases.map(async (held) => {
        const answers = await runHeld(count, held);
        // What a process hears when it leaves does not matter to it.
        const failed = answers.map((own) => own.slice(0, -1).filter(({ ok }) => !ok));
        expect(failed, JSON.stringify(held)).toEqual(range(count).map(() => []));
      }),
    );
  });

  test("refuses those who do not belong, and survives what is no message", async () => {
    await withServer(async (open, port) => {
      const [a, b] = [await open(), await open()];
      await a.ask(join(0));
      const reason = async (request: ReturnType<typeof join>) => (await b.ask(request)).head;
      expect(await reason(join(0))).toMatchObject({ reason: expect.stringContaining("two processes claim") });
      expect(await reason(join(1, 3))).toMatchObject({
        reason: expect.stringContaining("there are 3 processes"),
      });
      expect(await reason(join(2))).toMatchObject({
        reason: expect.stringContaining("no process 2: the 2 processes are 0 to 1"),
      });
      const stranger = connect({ host: "127.0.0.1", port });
      stranger.on("error", () => {});
      const closed = new Promise((resolve) => stranger.on("close", resolve));
      stranger.write("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n");
      await closed;
      expect((await b.ask(join(1))).head).toEqual({ ok: true });
    });
  });

  test("is opened only when all processes are there", async () => {
    const coordinator = `127.0.0.1:${await freePort()}`;
    const open = (index: number) => () => new ProcessStore({ coordinator, index, count: 3, timeoutMs: 400 });
    expect(open(1)).toThrow(
      /process 1 of 3 did not find the others .* process 0 did not answer at 127\.0\.0\.1/,
    );
    expect(open(0)).toThrow(/within 0\.4 s: processes 1, 2 of 3 never joined/);
    expect(() => new ProcessStore({ coordinator: "nowhere", index: 0, count: 2, timeoutMs: 1 })).toThrow(
      /host:port/,
    );
  });
});

describe("the processes of a run", () => {
  const coordinator = "node1:8476";
  const slurm = { SLURM_PROCID: "3", SLURM_STEP_NUM_TASKS: "4", SLURM_LOCALID: "1" };

  test("come from options, from variables or from a launcher", () => {
    expect(findProcesses(undefined, {})).toBeUndefined();
    expect(findProcesses(undefined, { SHARDWISE_COORDINATOR: coordinator, ...slurm })).toEqual({
      coordinator,
      index: 3,
      count: 4,
      timeoutMs: 300_000,
      localDevices: [1],
    });
    const shared = { SHARDWISE_COORDINATOR: coordinator, CUDA_VISIBLE_DEVICES: "5", ...slurm };
    expect(findProcesses(undefined, shared)?.localDevices).toBeUndefined();
    const own = { SHARDWISE_PROCESS_INDEX: "1", SHARDWISE_PROCESS_COUNT: "2" };
    expect(findProcesses({ coordinator }, own)).toMatchObject({ index: 1, count: 2 });
    expect(findProcesses(false, { ...own, ...slurm })).toBeUndefined();
    expect(findProcesses(undefined, { ...slurm, SHARDWISE_PROCESS_COUNT: "1" })).toBeUndefined();
  });

  test("are refused with what to do where something is missing", () => {
    expect(() => findProcesses(undefined, slurm)).toThrow(
      /process 3 of 4, but the address of process 0 is unknown/,
    );
    expect(() => findProcesses({ count: 2 }, {})).toThrow(/SHARDWISE_PROCESS_INDEX to 0 … 1/);
    expect(() => findProcesses({ count: 2, index: 2 }, {})).toThrow(
      /no process 2: the 2 processes are 0 … 1/,
    );
    expect(() => findProcesses(undefined, { SHARDWISE_PROCESS_COUNT: "two" })).toThrow(/use an integer/);
  });
});
