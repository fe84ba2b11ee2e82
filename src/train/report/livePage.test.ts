import { mkdirSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { connect, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { temporaryFolder } from "../../../test/support/runs.js";
import { LivePage, openLivePage } from "./livePage.js";

const folder = temporaryFolder();
const pages: LivePage[] = [];
afterEach(async () => {
  await Promise.all(pages.splice(0).map((page) => page.close("over")));
});

async function opened(interval = 1): Promise<LivePage> {
  const page = await openLivePage({ interval });
  pages.push(page);
  return page;
}

/** A view of one number. */
function numberView(value: number, filler = "") {
  return {
    title: "A <run>",
    folder: folder.path,
    sections: vi.fn(() => [
      { id: "status", html: "<p>training</p>" },
      { id: "number", html: `<p>${value}</p>${filler}` },
    ]),
  };
}

/** Reads events as a browser does. */
async function* events(address: string): AsyncGenerator<{ readonly event: string; readonly data: unknown }> {
  const { body } = await fetch(`${address}events`);
  let text = "";
  for await (const part of body ?? []) {
    text += Buffer.from(part).toString("utf8");
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const field = (name: string) =>
        lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = field("data");
      if (data !== undefined) yield { event: field("event") ?? "message", data: JSON.parse(data) };
    }
  }
}

/** The status of a request with headers that `fetch` does not allow. */
function statusOf(address: string, path: string, headers: Record<string, string>, method = "GET") {
  return new Promise<number | undefined>((resolve, reject) => {
    const { port } = new URL(address);
    request({ host: "127.0.0.1", port, path, headers, method }, (response) => {
      response.resume();
      resolve(response.statusCode);
    })
      .on("error", reject)
      .end();
  });
}

/** Opens the stream of events and never reads it. */
function stalledReader(address: string): Promise<Socket> {
  return new Promise((resolve) => {
    const socket = connect(Number(new URL(address).port), "127.0.0.1", () => {
      socket.write("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
      resolve(socket);
    });
    socket.on("error", () => {});
    socket.pause();
  });
}

describe("a live page", () => {
  test("shows the view, and sends what changes in it until the end", async () => {
    const page = await opened();
    page.show(numberView(1));
    const html = await (await fetch(page.address)).text();
    expect(html).toContain("A &#60;run&#62;");
    expect(html).toContain('<div id="number"><p>1</p></div>');
    const received = events(page.address);
    const both = { status: "<p>training</p>", number: "<p>1</p>" };
    expect((await received.next()).value?.data).toEqual({ order: ["status", "number"], sections: both });
    page.show(numberView(2));
    const second = await received.next();
    expect(second.value?.data).toEqual({ order: ["status", "number"], sections: { number: "<p>2</p>" } });
    const closing = page.close("The run has finished.");
    expect((await received.next()).value).toEqual({ event: "end", data: "The run has finished." });
    expect((await received.next()).done).toBe(true);
    await closing;
    pages.length = 0;
    await expect(fetch(page.address)).rejects.toThrow();
  });

  test("draws nothing while nobody reads, and little for many changes", async () => {
    const page = await opened(50);
    const view = numberView(1);
    for (let i = 0; i < 1000; i++) page.show(view);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(view.sections).not.toHaveBeenCalled();
    const received = events(page.address);
    await received.next();
    const views = Array.from({ length: 1000 }, (_, i) => numberView(i - 999));
    for (const view of views) page.show(view);
    expect((await received.next()).value?.data).toMatchObject({ sections: { number: "<p>0</p>" } });
    expect(views.map(({ sections }) => sections.mock.calls.length).reduce((sum, n) => sum + n)).toBe(1);
    await received.return(undefined);
  });

  test("is for this machine alone, by its own names", async () => {
    const page = await opened();
    page.show(numberView(1));
    const { port } = new URL(page.address);
    for (const host of ["localhost", `localhost:${port}`, "127.0.0.1:9", "[::1]:80", "LOCALHOST"])
      expect(await statusOf(page.address, "/", { host }), host).toBe(200);
    for (const host of ["example.com", `evil.localhost:${port}`, "localhost.evil.com", "192.168.0.1"])
      expect(await statusOf(page.address, "/events", { host }), host).toBe(403);
    const others = Object.values(networkInterfaces())
      .flatMap((all) => all ?? [])
      .filter(({ internal, family }) => !internal && family === "IPv4");
    for (const { address } of others)
      await expect(fetch(`http://${address}:${port}/`), address).rejects.toThrow();
  });

  test("can only be read, and sends nothing that other sites can use", async () => {
    const page = await opened();
    expect(await statusOf(page.address, "/", { host: "localhost" }, "POST")).toBe(405);
    expect(await statusOf(page.address, "/nothing", { host: "localhost" })).toBe(404);
    for (const path of ["/%E0%A4%A", "//", "//live.js", "//localhost/", "//[/", "/checkpoints//"])
      expect(await statusOf(page.address, path, { host: "localhost" }), path).toBe(404);
    expect(await statusOf(page.address, "/?from=here", { host: "localhost" })).toBe(200);
    const { headers } = await fetch(page.address);
    expect(headers.get("access-control-allow-origin")).toBeNull();
    expect(headers.get("content-security-policy")).toContain("default-src 'none'");
  });

  test("serves the files of checkpoints, and no others", async () => {
    const checkpoint = join(folder.path, "checkpoints", "step-00000003");
    mkdirSync(join(checkpoint, "data"), { recursive: true });
    writeFileSync(join(checkpoint, "manifest.json"), "{}");
    writeFileSync(join(checkpoint, "data", "0.bin"), "abc");
    writeFileSync(join(folder.path, "secret.txt"), "secret");
    const page = await opened();
    page.show(numberView(1));
    const list = await (await fetch(`${page.address}checkpoints/step-00000003/`)).text();
    expect(list).toContain('<a href="data/0.bin">data/0.bin</a>, 3 B');
    const file = await fetch(`${page.address}checkpoints/step-00000003/data/0.bin`);
    expect([file.headers.get("content-type"), await file.text()]).toEqual([
      "application/octet-stream",
      "abc",
    ]);
    for (const path of [
      "step-00000003/..%2f..%2fsecret.txt",
      "step-00000003/%2e%2e/x",
      "..%2fsecret.txt",
      "step-00000009/",
    ])
      expect(await statusOf(page.address, `/checkpoints/${path}`, { host: "localhost" }), path).toBe(404);
  });

  test("never waits for readers, and keeps at most one update for a slow one", async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const sockets: Socket[] = [];
    server.on("connection", (socket) => sockets.push(socket));
    const page = new LivePage(server, 1);
    page.show(numberView(0));
    const slow = await stalledReader(page.address);
    const megabyte = "x".repeat(2 ** 20);
    await vi.waitFor(() => expect(page.numReaders).toBe(1));
    for (let i = 1; i <= 60; i++) {
      page.show(numberView(i, megabyte + i));
      await new Promise((resolve) => setTimeout(resolve, 3));
    }
    // The kernel's buffers hold some megabytes more, which are not the process's.
    const waiting = sockets.map(({ writableLength }) => writableLength);
    expect(Math.max(...waiting)).toBeGreaterThan(0);
    expect(Math.max(...waiting)).toBeLessThan(3 * 2 ** 20);
    await page.close("over");
    slow.destroy();
  });

  test("forgets readers that are gone", async () => {
    const page = await opened();
    const readers = await Promise.all([stalledReader(page.address), stalledReader(page.address)]);
    await vi.waitFor(() => expect(page.numReaders).toBe(2));
    for (const reader of readers) reader.destroy();
    await vi.waitFor(() => expect(page.numReaders).toBe(0));
  });

  test("keeps a limited number of browsers up to date", async () => {
    const page = await opened();
    const readers = await Promise.all(Array.from({ length: 32 }, () => stalledReader(page.address)));
    await vi.waitFor(() => expect(page.numReaders).toBe(32));
    expect(await statusOf(page.address, "/events", { host: "localhost" })).toBe(503);
    for (const reader of readers) reader.destroy();
  });

  test("says so when its port is taken or the view cannot be drawn", async () => {
    const page = await opened();
    const port = Number(new URL(page.address).port);
    await expect(openLivePage({ port })).rejects.toThrow(`[watch] cannot listen on port ${port}`);
    page.show({
      ...numberView(1),
      sections: () => {
        throw new Error("no <chart>");
      },
    });
    expect(await (await fetch(page.address)).text()).toContain("could not be drawn (no &#60;chart&#62;)");
  });
});
