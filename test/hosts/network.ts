/** Hosts for tests: network namespaces of this machine with names and addresses of their own, joined by a bridge. */
import { execFileSync } from "node:child_process";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { range } from "../../src/ir/shape.js";

const run = (command: string, ...args: readonly string[]): string =>
  execFileSync(command, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });

/** Several hosts on one network; needs root, `ip` and `tc`. */
export class Network {
  private readonly mark = process.pid % 10_000;
  private readonly bridge = `sw${this.mark}`;
  readonly addresses: readonly string[];

  /**
   * @param count how many hosts there are
   * @param rate what each of them sends and receives, as `tc` writes it
   */
  constructor(
    readonly count: number,
    readonly rate: string,
  ) {
    this.addresses = range(count).map((host) => `10.${this.mark % 200}.77.${host + 1}`);
  }

  open(): void {
    run("ip", "link", "add", this.bridge, "type", "bridge");
    run("ip", "addr", "add", `10.${this.mark % 200}.77.254/24`, "dev", this.bridge);
    run("ip", "link", "set", this.bridge, "up");
    this.addresses.forEach((address, host) => {
      const [name, port] = [this.nameOf(host), this.portOf(host)];
      const shape = ["root", "tbf", "rate", this.rate, "burst", "64kb", "latency", "400ms"];
      run("ip", "netns", "add", name);
      run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name);
      run("ip", "link", "set", port, "master", this.bridge, "up");
      run("ip", "-n", name, "addr", "add", `${address}/24`, "dev", "eth0");
      run("ip", "-n", name, "link", "set", "eth0", "up");
      run("ip", "-n", name, "link", "set", "lo", "up");
      // Whatever this machine prefers: with BBR two flows leave a seventh of the link that they share unused.
      const subnet = `${address.replace(/\d+$/, "0")}/24`;
      run("ip", "-n", name, "route", "replace", subnet, "dev", "eth0", "src", address, "congctl", "cubic");
      run("tc", "qdisc", "add", "dev", port, ...shape);
      run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", ...shape);
    });
  }

  /** Pulls the plug of a host, or puts it back. */
  plug(host: number, isIn: boolean): void {
    run("ip", "link", "set", this.portOf(host), isIn ? "up" : "down");
  }

  /** Writes what starts a command on the host of an address, as `ssh` does. @returns its path */
  writeAgent(folder: string): string {
    const path = join(folder, "agent.sh");
    const text = `#!/bin/sh
# usage: agent.sh ADDRESS COMMAND…
number=\${1##*.}
shift
exec ip netns exec sw${this.mark}h$((number - 1)) unshare --uts sh -c "hostname host$((number - 1)); $*"
`;
    writeFileSync(path, text);
    chmodSync(path, 0o755);
    return path;
  }

  /** Takes everything away that is there. */
  close(): void {
    const attempts = [
      ...range(this.count).map((host) => ["netns", "del", this.nameOf(host)]),
      ["link", "del", this.bridge],
    ];
    for (const args of attempts) {
      try {
        run("ip", ...args);
      } catch {
        // It was never made.
      }
    }
  }

  private nameOf(host: number): string {
    return `sw${this.mark}h${host}`;
  }

  private portOf(host: number): string {
    return `sw${this.mark}p${host}`;
  }
}
