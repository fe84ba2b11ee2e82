/** TypeDoc's own theme with the pages of `docs/` in their order and chapters before the reference. */
import {
  DefaultTheme,
  KindRouter,
  type NavigationElement,
  type ProjectReflection,
  type Reflection,
  type RendererEvent,
} from "typedoc";
import { chapters, readText, titleOf } from "./pages.js";

/** The pages of `docs/` by their headings, under which TypeDoc knows them. */
const byTitle = new Map(
  chapters.flatMap(({ pages }) => pages.map((page) => [titleOf(readText(`docs/${page}`)), page] as const)),
);

/** Gives pages the addresses of their files, `docs/data.html` and not `Data_parallelism.html`. */
export class PagesRouter extends KindRouter {
  protected override getIdealBaseName(reflection: Reflection): string {
    const page = reflection.isDocument() ? byTitle.get(reflection.name) : undefined;
    return page ? `docs/${page.replace(/\.md$/, "")}` : super.getIdealBaseName(reflection);
  }
}

/** The theme of the documentation site. */
export class PagesTheme extends DefaultTheme {
  override async preRender(event: RendererEvent): Promise<void> {
    await super.preRender(event);
    // Lines are coloured for half a second at most, and the first ones take longer: these are not shown.
    const sample =
      'import { np } from "shardwise";\nconst f = <T>(x: T): T => ({ ...x, y: [1, "a", null] });';
    for (const language of ["typescript", "bash", "json"]) this.markedPlugin.getHighlighted(sample, language);
  }

  override buildNavigation(project: ProjectReflection): NavigationElement[] {
    const documents = new Map(project.documents?.map((document) => [byTitle.get(document.name), document]));
    const written = chapters.map(({ title, pages }) => ({
      text: title,
      children: pages.map((page) => {
        const document = documents.get(page);
        if (!document) throw new Error(`the site has no page for docs/${page}`);
        return { text: document.name, path: this.router.getFullUrl(document) };
      }),
    }));
    const modules = super.buildNavigation(project).find(({ text }) => text === "Modules");
    const playground = { text: "Playground", path: "playground/index.html" };
    return [playground, ...written, { text: "Reference", children: modules?.children ?? [] }];
  }
}
