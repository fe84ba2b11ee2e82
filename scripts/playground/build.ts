/** Builds the playground: a site of plain files that works on any host. Needs the output of `npm run build`. */
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type BuildOptions, build } from "esbuild";
import { chapters, readText, titleOf } from "../site/pages.js";
import { programsOf } from "../site/programs.js";

const root = fileURLToPath(new URL("../../", import.meta.url));
const source = join(root, "playground");
/** Modules that programs of the playground can import. */
const modules = [
  "shardwise",
  "shardwise/nn",
  "shardwise/optim",
  "shardwise/parallel",
  "shardwise/random",
  "shardwise/train",
  "shardwise/engines",
];

/** A program that can be opened in the editor. */
interface Example {
  readonly group: string;
  readonly title: string;
  readonly code: string;
}

/** Makes all files of the playground. @param out an empty or missing folder */
export async function buildPlayground(out: string): Promise<void> {
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  for (const file of ["index.html", "style.css", "icon.svg"])
    copyFileSync(join(source, file), join(out, file));
  writeFileSync(join(out, "examples.json"), JSON.stringify(examples()));
  writeFileSync(join(out, "types.json"), JSON.stringify(types()));
  writeFileSync(join(out, "text.txt"), novel());
  const common = {
    bundle: true,
    minify: true,
    // Error messages contain the names of classes.
    keepNames: true,
    platform: "browser",
    conditions: ["browser"],
    target: "es2023",
    legalComments: "none",
    logLevel: "error",
    // The playground uses the package as a user would, not the sources of this repository.
    tsconfigRaw: {},
  } satisfies BuildOptions;
  const alone = (name: string, entry: string, more: BuildOptions = {}) =>
    build({ ...common, ...more, entryPoints: { [name]: join(source, entry) }, outdir: out });
  await build({
    ...common,
    entryPoints: [join(source, "app/main.ts")],
    outdir: out,
    format: "esm",
    splitting: true,
    chunkNames: "chunks/[hash]",
  });
  await Promise.all([
    ...["pipeline", "training", "digits"].map((name) => alone(name, `workers/${name}.ts`, { format: "esm" })),
    alone("language", "workers/language.ts", { format: "iife" }),
    // Frames of the library are recognised by this name in stack traces.
    alone("sandbox", "sandbox/worker.ts", {
      format: "iife",
      footer: { js: "//# sourceURL=/node_modules/shardwise/dist/playground.js" },
    }),
  ]);
  const files = readdirSync(out, { recursive: true, encoding: "utf8" }).filter((file) => /\.\w+$/.test(file));
  const hash = createHash("sha256");
  for (const file of files.sort()) hash.update(readFileSync(join(out, file)));
  const version = JSON.stringify(hash.digest("hex").slice(0, 16));
  const addresses = JSON.stringify(["./", ...files.map((file) => file.replaceAll("\\", "/"))]);
  await alone("service", "workers/service.ts", {
    format: "iife",
    define: { BUILD: version, FILES: addresses },
  });
}

/** Programs of the documentation that need nothing but the library. */
function examples(): Example[] {
  const names = readdirSync(join(source, "functions")).map((file) => file.replace(/\.ts$/, ""));
  const functions = names.map((name) => ({
    group: "Functions of parallel training",
    title: name,
    code: readFileSync(join(source, "functions", `${name}.ts`), "utf8"),
  }));
  const pages = ["README.md", ...chapters.flatMap((chapter) => chapter.pages.map((page) => `docs/${page}`))];
  const documented = pages.flatMap((page) => {
    const title = titleOf(readText(page));
    const programs = programsOf(page).filter(({ code }) => runsInBrowsers(code));
    return programs.map(({ line, code }, i) => ({
      group: title,
      title: `${title}${programs.length > 1 ? `, program ${i + 1}` : ""} (line ${line})`,
      code,
    }));
  });
  return [...functions, ...documented];
}

function runsInBrowsers(code: string): boolean {
  const imported = [...code.matchAll(/^(?:import|\} from) .*?"([^"]+)";$/gm)].map(([, name = ""]) => name);
  return (
    imported.length > 0 &&
    imported.every((name) => modules.includes(name)) &&
    !/\bprocess\.|trainRun|planTraining|Pretrained|Checkpoint|createThreadsEngine|createXlaEngine|createMpiEngine|read\w*\("|write\w*\("/.test(
      code,
    )
  );
}

/** The declarations of the library and of JavaScript itself, by the paths that the language service asks for. */
function types(): Record<string, string> {
  const files: Record<string, string> = {
    "/node_modules/shardwise/package.json": readFileSync(join(root, "package.json"), "utf8"),
  };
  const dist = join(root, "dist");
  for (const file of readdirSync(dist, { recursive: true, encoding: "utf8" })) {
    if (file.endsWith(".d.ts"))
      files[`/node_modules/shardwise/dist/${file}`] = readFileSync(join(dist, file), "utf8");
  }
  const lib = dirname(createRequire(import.meta.url).resolve("typescript"));
  for (const file of readdirSync(lib)) {
    if (
      /^lib\.(es\d+|esnext\.disposable|decorators|dom)\b.*\.d\.ts$/.test(file) &&
      !/full|iterable\.d|webworker/.test(file)
    ) {
      files[`/lib/${file}`] = readFileSync(join(lib, file), "utf8");
    }
  }
  return files;
}

/** The novel that comes with the package. */
function novel(): string {
  const folder = join(root, "texts/moby-dick");
  const files = readdirSync(folder).filter((file) => file.endsWith(".txt"));
  files.sort(new Intl.Collator("en", { numeric: true }).compare);
  return files.map((file) => readFileSync(join(folder, file), "utf8")).join("\n");
}
