/** WebKit as distributions have it, driven by its own WebDriver: playwright needs a build of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { request } from "node:http";
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { onPath } from "./programs.js";
import { START_MS, scriptOf, timeouts, valueTold } from "./webdriver.js";

/** A WebKit, with a screen of its own where there is none. */
export class WebKit {
  private constructor(
    private readonly port: number,
    private readonly driver: ChildProcess,
    private readonly screen: Screen | undefined,
  ) {}

  /** @param executable the program WebKitWebDriver */
  static async launch(executable: string): Promise<WebKit> {
    const screen = process.env.DISPLAY ? undefined : await openScreen();
    const port = await freePort();
    const env = {
      // WebKit has shared memory for pages that are isolated, but that for GTK leaves it off unless it is asked for.
      JSC_useSharedArrayBuffer: "1",
      ...process.env,
      DISPLAY: screen?.display ?? process.env.DISPLAY,
    };
    const driver = spawn(executable, [`--port=${port}`], { stdio: "ignore", env });
    const browser = new WebKit(port, driver, screen);
    try {
      await browser.listening();
      return browser;
    } catch (error) {
      await browser.close();
      throw error;
    }
  }

  /** Opens a page in a session of its own and evaluates an expression there, the value of which may be a promise. */
  async evaluate(url: string, expression: string): Promise<unknown> {
    const { sessionId } = (await this.send("POST", "/session", {
      capabilities: { alwaysMatch: { timeouts } },
    })) as { readonly sessionId: string };
    const session = `/session/${sessionId}`;
    try {
      await this.send("POST", `${session}/url`, { url });
      return valueTold(
        await this.send("POST", `${session}/execute/async`, { script: scriptOf(expression), args: [] }),
      );
    } finally {
      // A page that crashed has ended its session.
      await this.send("DELETE", session).catch(() => {});
    }
  }

  async close(): Promise<void> {
    for (const process of [this.driver, this.screen?.process]) if (process) await end(process);
  }

  private async listening(): Promise<void> {
    for (const give = performance.now() + START_MS; ; await sleep(100)) {
      const ready = await this.send("GET", "/status").then(
        () => true,
        () => false,
      );
      if (ready) return;
      if (this.driver.exitCode !== null || performance.now() > give)
        throw new Error("the driver of WebKit does not answer");
    }
  }

  /** Sends a command and returns its result; unlike `fetch`, it waits as long as a script takes. */
  private async send(method: string, path: string, parameters?: object): Promise<unknown> {
    const sent = request({ host: "127.0.0.1", port: this.port, method, path });
    sent.end(parameters && JSON.stringify(parameters));
    const [response] = await once(sent, "response");
    let text = "";
    for await (const chunk of response) text += chunk;
    const { value } = JSON.parse(text) as { readonly value: unknown };
    if (response.statusCode !== 200) throw new Error(`${path}: ${JSON.stringify(value).slice(0, 1000)}`);
    return value;
  }
}

/** A screen in memory. */
interface Screen {
  readonly process: ChildProcess;
  readonly display: string;
}

async function openScreen(): Promise<Screen> {
  const executable = onPath("Xvfb");
  if (executable === undefined)
    throw new Error("WebKit needs a screen: set DISPLAY, or install Xvfb (Debian: xvfb)");
  // The number of a free display is written to the fourth file.
  const args = ["-displayfd", "3", "-screen", "0", "1280x900x24"];
  const process = spawn(executable, args, { stdio: ["ignore", "ignore", "ignore", "pipe"] });
  const [number] = await once(createInterface({ input: process.stdio[3] as NodeJS.ReadableStream }), "line");
  return { process, display: `:${number}` };
}

/** A port that nobody listens on. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("no port is free");
  return address.port;
}

async function end(process: ChildProcess): Promise<void> {
  const ended = once(process, "exit");
  if (process.exitCode === null && process.kill()) await ended;
}
