/** Firefox as distributions have it, driven by its own remote protocol (Marionette): playwright needs a build of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { START_MS, scriptOf, timeouts, valueTold } from "./webdriver.js";

const preferences: Readonly<Record<string, unknown>> = {
  // The port is chosen by the system and written into a file of the profile.
  "marionette.port": 0,
  "browser.shell.checkDefaultBrowser": false,
  "browser.startup.homepage_override.mstone": "ignore",
  "datareporting.policy.dataSubmissionEnabled": false,
  "toolkit.telemetry.reportingpolicy.firstRun": false,
  "app.update.auto": false,
  "app.normandy.enabled": false,
  "extensions.update.enabled": false,
  "network.captive-portal-service.enabled": false,
  "network.connectivity-service.enabled": false,
  "dom.max_script_run_time": 0,
  // Pages that were left end at once, and their workers with them.
  "browser.sessionhistory.max_total_viewers": 0,
};

/** One message of Marionette is its length in bytes, a colon, and JSON. */
class Connection {
  private received = Buffer.alloc(0);
  private readonly waiting = new Map<number, (reply: readonly unknown[]) => void>();
  private readonly ended: Promise<never>;
  private sent = 0;

  constructor(private readonly socket: Socket) {
    socket.on("data", (data) => {
      this.received = Buffer.concat([this.received, data]);
      this.read();
    });
    this.ended = new Promise((_, reject) => socket.once("close", () => reject(new Error("Firefox ended"))));
    // Whoever waits for a reply hears of it.
    this.ended.catch(() => {});
  }

  private read(): void {
    for (;;) {
      const colon = this.received.indexOf(":");
      const length = Number(this.received.subarray(0, colon));
      if (colon < 0 || this.received.length < colon + 1 + length) return;
      const message: unknown = JSON.parse(String(this.received.subarray(colon + 1, colon + 1 + length)));
      this.received = this.received.subarray(colon + 1 + length);
      // The first message, an object, is a greeting.
      if (Array.isArray(message)) this.waiting.get(Number(message[1]))?.(message);
    }
  }

  /** Sends a command and returns its result. */
  async send(name: string, parameters: object): Promise<unknown> {
    const id = ++this.sent;
    const reply = new Promise<readonly unknown[]>((resolve) => this.waiting.set(id, resolve));
    const text = JSON.stringify([0, id, name, parameters]);
    this.socket.write(`${Buffer.byteLength(text)}:${text}`);
    const [, , error, result] = await Promise.race([reply, this.ended]);
    this.waiting.delete(id);
    if (error) throw new Error(`${name}: ${JSON.stringify(error).slice(0, 1000)}`);
    return result;
  }

  close(): void {
    this.socket.destroy();
  }
}

/** A Firefox with a profile of its own and one page. */
export class Firefox {
  private constructor(
    private readonly process: ChildProcess,
    private readonly profile: string,
    private readonly connection: Connection,
    readonly version: string,
  ) {}

  static async launch(executable: string): Promise<Firefox> {
    const profile = mkdtempSync(join(tmpdir(), "shardwise-firefox-"));
    const lines = Object.entries(preferences).map(
      ([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});`,
    );
    writeFileSync(join(profile, "user.js"), lines.join("\n"));
    const args = ["--headless", "--marionette", "--no-remote", "--profile", profile];
    const process = spawn(executable, args, { stdio: "ignore" });
    try {
      const port = await portIn(profile, process);
      const socket = connect(port, "127.0.0.1");
      await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
      const connection = new Connection(socket);
      const { capabilities } = (await connection.send("WebDriver:NewSession", {})) as {
        readonly capabilities: { readonly browserVersion: string };
      };
      await connection.send("WebDriver:SetTimeouts", timeouts);
      return new Firefox(process, profile, connection, capabilities.browserVersion);
    } catch (error) {
      await end(process, profile);
      throw error;
    }
  }

  /** Opens a page and evaluates an expression there, the value of which may be a promise. */
  async evaluate(url: string, expression: string): Promise<unknown> {
    await this.connection.send("WebDriver:Navigate", { url });
    const { value } = (await this.connection.send("WebDriver:ExecuteAsyncScript", {
      script: scriptOf(expression),
      args: [],
    })) as { readonly value: unknown };
    return valueTold(value);
  }

  async close(): Promise<void> {
    this.connection.close();
    await end(this.process, this.profile);
  }
}

/** The port that Firefox listens on, once it does. */
async function portIn(profile: string, process: ChildProcess): Promise<number> {
  const file = join(profile, "MarionetteActivePort");
  for (const give = performance.now() + START_MS; performance.now() < give; await sleep(100)) {
    const port = existsSync(file) ? Number(readFileSync(file, "utf8")) : 0;
    if (port > 0) return port;
    if (process.exitCode !== null) throw new Error(`Firefox ended with ${process.exitCode}`);
  }
  throw new Error(`Firefox did not listen within ${START_MS / 1000} s`);
}

async function end(process: ChildProcess, profile: string): Promise<void> {
  const ended = new Promise((resolve) => process.once("exit", resolve));
  if (process.exitCode === null && process.kill()) await ended;
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
