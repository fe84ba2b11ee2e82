/** What is installed with the package, as docs/security.md says. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const read = (path: string) => readFileSync(new URL(`../${path}`, import.meta.url), "utf8");

interface Locked {
  readonly version: string;
  readonly license?: string;
  readonly integrity?: string;
  readonly hasInstallScript?: boolean;
  readonly dev?: boolean;
  readonly devOptional?: boolean;
}

const { packages }: { packages: Readonly<Record<string, Locked>> } = JSON.parse(read("package-lock.json"));
const installed = Object.entries(packages).flatMap(([path, locked]) => {
  const [, name] = /^node_modules\/(.+)$/.exec(path) ?? [];
  return name === undefined ? [] : [{ name, ...locked }];
});

test("the page lists what users get, with versions and licenses", () => {
  const rows = [...read("docs/security.md").matchAll(/^\| ([\w-]+) \| (\d\S+) \| (\S+) \|/gm)];
  const used = installed.filter(({ name, dev, devOptional }) => {
    return !(dev || devOptional) && !name.startsWith("@koromix/koffi-");
  });
  expect(rows.map(([, name, version, license]) => ({ name, version, license }))).toEqual(
    used.map(({ name, version, license }) => ({ name, version, license })),
  );
});

test("every package has a checksum, and none needs to run a script when it is installed", () => {
  expect(installed.filter(({ integrity }) => !integrity?.startsWith("sha512-"))).toEqual([]);
  const running = installed.filter(({ hasInstallScript }) => hasInstallScript).map(({ name }) => name);
  expect(running).toEqual(["esbuild", "koffi"]);
  expect(read(".npmrc")).toContain("ignore-scripts=true");
  const { scripts }: { scripts: object } = JSON.parse(read("package.json"));
  for (const event of ["preinstall", "install", "postinstall", "prepare"])
    expect(scripts).not.toHaveProperty(event);
});
