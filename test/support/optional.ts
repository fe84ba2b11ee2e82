/**
 * What tests need and a machine may lack, how each is looked for, and tests that run where it is there and are skipped
 * with the reason where it is not. No test skips in another way (`test/optional`), none needs Python or `/dev/shm`.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { describe, type TestOptions, test } from "vitest";
import { isFetched, type Runtime } from "../../scripts/runtimeFolders.js";
import { detectFeatures } from "../../src/compiler/wasm/features.js";
import { nativeKernelsHere } from "../../src/engines/kernels/kernelChoice.js";
import { hasWideMemories } from "../../src/engines/memory/memoryLayout.js";
import { nativeGemmHere } from "../../src/engines/products/available.js";
import { findBlas } from "../../src/engines/products/blas.js";
import { CodeMemory } from "../../src/engines/system/codeMemory.js";
import { detectX64Features } from "../../src/engines/system/cpu.js";
import { loadKoffi } from "../../src/engines/system/koffi.js";
import { allowedCores } from "../../src/engines/system/pinning.js";
import { findLaunchers, type Launcher } from "./launchers.js";
import { findChromium } from "./programs.js";

/** Something that a machine may lack. */
export interface Optional<T = unknown> {
  /** What it is and how to get it: "an MPI launcher (Debian: openmpi-bin or mpich)". */
  readonly name: string;
  /** Looks for it, once for the process; nothing where it is not. */
  readonly find: () => T | undefined;
}

function optional<T>(name: string, look: () => T | undefined): Optional<T> {
  let found: { readonly value: T | undefined } | undefined;
  return {
    name,
    find: () => {
      found ??= { value: look() };
      return found.value;
    },
  };
}

/** Two things that a test needs together; the name is that of what is missing. */
export function bothOf<A, B>(first: Optional<A>, second: Optional<B>): Optional<readonly [A, B]> {
  return {
    get name() {
      return (first.find() === undefined ? first : second).name;
    },
    find: () => {
      const [a, b] = [first.find(), second.find()];
      return a === undefined || b === undefined ? undefined : [a, b];
    },
  };
}

/** Whether all of these programs start. */
const start = (...programs: readonly string[]): true | undefined =>
  programs.every((program) => spawnSync(program, ["--version"], { stdio: "ignore" }).status === 0) ||
  undefined;

export const mpi: Optional<readonly Launcher[]> = optional(
  "an MPI launcher (Debian: openmpi-bin or mpich)",
  () => {
    const launchers = findLaunchers();
    return launchers.length > 0 ? launchers : undefined;
  },
);

export const browser: Optional<string> = optional(
  "a browser (Debian: chromium; CHROMIUM names another one)",
  findChromium,
);

/** An adapter is looked for in another process: drivers may end theirs. */
export const webGpu = optional("WebGPU in Node (npm install webgpu, and a Vulkan driver)", () => {
  const name = JSON.stringify(process.env.SHARDWISE_TEST_WEBGPU ?? "webgpu");
  const script = `import { create } from ${name}; process.exit((await create([]).requestAdapter()) ? 0 : 1);`;
  const { status } = spawnSync(process.execPath, ["--input-type=module", "-e", script], { stdio: "ignore" });
  return status === 0 || undefined;
});

export const koffi = optional("koffi, which has no binary for this system", loadKoffi);

export const blas = optional("a BLAS (Debian: libopenblas0-pthread; SHARDWISE_BLAS names one)", () =>
  findBlas(),
);

export const compiler = optional("a C compiler called cc (Debian: gcc)", () => start("cc"));

/** What the names of programs for x86-64 and AArch64 begin with, nothing on such a machine itself. */
export const toolPrefixes = {
  x64: process.arch === "x64" ? "" : "x86_64-linux-gnu-",
  arm64: process.arch === "arm64" ? "" : "aarch64-linux-gnu-",
} as const;

const assembler = (prefix: string, name: string, packages: string) =>
  optional(`GNU as for ${name} (Debian: ${packages})`, () => start(`${prefix}as`, `${prefix}objcopy`));

export const x64Assembler = assembler(toolPrefixes.x64, "x86-64", "binutils, binutils-x86-64-linux-gnu");
export const a64Assembler = assembler(toolPrefixes.arm64, "AArch64", "binutils, binutils-aarch64-linux-gnu");

/** The programs that compile for AArch64 and run what they made on any machine. */
export const emulator = optional(
  "an emulated ARM processor (Debian: qemu-user, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross)",
  () => {
    const tools = { compiler: "aarch64-linux-gnu-gcc", emulator: "qemu-aarch64" } as const;
    return start(tools.compiler, tools.emulator) && tools;
  },
);

/** Where the files of the system begin; a test of this module gives others. */
const system = () => process.env.SHARDWISE_TEST_SYSTEM ?? "";

export const hugePages = optional("huge pages of Linux", () =>
  existsSync(`${system()}/sys/kernel/mm/transparent_hugepage`) ? true : undefined,
);

/** What can be installed, or is a matter of the system. */
export const installable: Readonly<Record<string, Optional>> = {
  mpi,
  browser,
  webGpu,
  koffi,
  blas,
  compiler,
  x64Assembler,
  a64Assembler,
  emulator,
  hugePages,
};

const hasCode = process.arch === "x64" || process.arch === "arm64";

export const codeMemory = optional("koffi on a Linux of x86-64 or AArch64", () => {
  const memory = hasCode ? CodeMemory.open() : undefined;
  return memory instanceof CodeMemory ? memory : undefined;
});

const x64Vectors = (feature: "avx2" | "avx512") =>
  optional(`an x86-64 processor with ${feature.toUpperCase()}, and koffi`, () => {
    const memory = process.arch === "x64" ? codeMemory.find() : undefined;
    return memory !== undefined && detectX64Features(memory)[feature] ? memory : undefined;
  });

/** Memory for code on vectors of 256 or 512 bits. */
export const vectors = { 256: x64Vectors("avx2"), 512: x64Vectors("avx512") } as const;

export const nativeProducts = optional("machine code for products", () => {
  const found = nativeGemmHere();
  return "unavailable" in found ? undefined : found;
});

export const nativeKernels = optional("machine code for kernels, an x86-64 with AVX2", () => {
  const found = nativeKernelsHere();
  return "unavailable" in found ? undefined : found;
});

export const wideMemories = optional("memories of 64-bit addresses, Node 24", () =>
  hasWideMemories() ? true : undefined,
);

export const fusedMultiply = optional("fused multiplications in WebAssembly", () =>
  detectFeatures().fma ? true : undefined,
);

export const twoCores = optional("Linux with two cores", () =>
  process.platform === "linux" && allowedCores().length > 1 ? true : undefined,
);

export const posix = optional("a POSIX system", () => (process.platform === "win32" ? undefined : true));

/** Another runtime than this one. */
export const runtime = (wanted: Runtime): Optional<Runtime> =>
  optional(`${wanted.name}, which npm run test:nodes fetches`, () =>
    isFetched(wanted) ? wanted : undefined,
  );

/** What the everyday suite leaves out, and a command of its own runs. */
export const extended = (command: string, isAsked: boolean): Optional<true> =>
  optional(`\`${command}\`, which runs more than the everyday suite`, () => isAsked || undefined);

/** Why a test is skipped: what it needs could be there, or it is for other machines and commands. */
function reasonOf({ name }: Optional): string {
  const isInstallable = Object.values(installable).some((thing) => thing.name === name);
  return `${isInstallable ? "needs" : "only with"} ${name}`;
}

/** A test of something that a machine may lack. */
export function testWith<T>(
  thing: Optional<T>,
  name: string,
  options: TestOptions,
  body: (found: T) => unknown,
): void {
  const found = thing.find();
  if (found === undefined) test.skip(`${name} (${reasonOf(thing)})`, () => {});
  else test(name, options, () => body(found));
}

/** A group of tests of something that a machine may lack; they are not even made where it is missing. */
export function describeWith<T>(thing: Optional<T>, name: string, body: (found: T) => void): void {
  const found = thing.find();
  describe(name, () => {
    if (found === undefined) test.skip(`(${reasonOf(thing)})`, () => {});
    else body(found);
  });
}

/** Something that a machine may lack; where it is missing, a skipped test says so. */
export function orSkip<T>(thing: Optional<T>): T | undefined {
  const found = thing.find();
  if (found === undefined) test.skip(`all of it (${reasonOf(thing)})`, () => {});
  return found;
}
