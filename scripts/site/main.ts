/**
 * `npm run docs`: the documentation as a site of plain files in `site/`, made without a network. TypeDoc makes both
 * halves, the pages of `docs/` and the reference of the sources, so that one search finds both. The playground is
 * next to them and needs the built package.
 */
import { rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Application, Converter, ReflectionKind, type TypeDocOptions } from "typedoc";
import { buildPlayground } from "../playground/build.js";
import { chapters, entryPoints, frontPage, readText, titleOf } from "./pages.js";
import { PagesRouter, PagesTheme } from "./theme.js";

const root = fileURLToPath(new URL("../../", import.meta.url));

// Its links begin at the root, and so must the file.
const front = `${root}.front.md`;
writeFileSync(front, frontPage());
process.on("exit", () => rmSync(front, { force: true }));

const options = {
  name: "shardwise",
  entryPoints: entryPoints.map((source) => `${root}${source}`),
  tsconfig: `${root}tsconfig.build.json`,
  readme: front,
  projectDocuments: chapters.flatMap(({ pages }) => pages.map((page) => `${root}docs/${page}`)),
  out: `${root}site`,
  theme: "pages",
  router: "pages",
  customCss: `${root}scripts/site/style.css`,
  customJs: `${root}scripts/site/chapters.js`,
  highlightLanguages: ["bash", "html", "javascript", "json", "python", "typescript"],
  navigation: { includeGroups: true, includeFolders: false },
  headings: { readme: false, document: false },
  searchInDocuments: true,
  searchInComments: true,
  searchGroupBoosts: { Documents: 5 },
  disableSources: true,
  excludeInternal: true,
  excludePrivate: true,
  hideGenerator: true,
  githubPages: true,
  treatWarningsAsErrors: true,
  // What public names mention is checked by test/publicTypes.test.ts, in more detail.
  validation: { notExported: false, invalidLink: true, invalidPath: true, rewrittenLink: false },
} satisfies Partial<TypeDocOptions>;

const app = await Application.bootstrap(options);
app.renderer.defineTheme("pages", PagesTheme);
app.renderer.defineRouter("pages", PagesRouter);

// A page is called after its heading, not after its file.
app.converter.on(Converter.EVENT_CREATE_DOCUMENT, (_, document) => {
  document.name = titleOf(readText(`docs/${document.name}.md`));
});
// Entry points are known by the names that programs import.
app.converter.on(Converter.EVENT_CREATE_DECLARATION, (_, declaration) => {
  if (declaration.kindOf(ReflectionKind.Module)) {
    declaration.name = declaration.name === "index" ? "shardwise" : `shardwise/${declaration.name}`;
  }
});

const project = await app.convert();
if (!project) throw new Error("the sources could not be read: see the messages above");
app.validate(project);
await app.generateDocs(project, options.out);
if (app.logger.hasErrors() || app.logger.hasWarnings()) process.exit(1);
await buildPlayground(`${options.out}/playground`);
console.log("open site/index.html");
