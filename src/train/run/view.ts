import type { CostReport } from "../../spmd/inspect/cost.js";
import type { RunJournal } from "../folder/journal.js";
import { escapeHtml } from "../report/charts.js";
import { courseSections, deviceSections, type PageSection } from "../report/reportPage.js";
import { courseReport, deviceReport, runTitle } from "../report/runReport.js";
import type { StepTrace } from "../report/stepTrace.js";
import type { Training } from "../step/training.js";
import type { ConfiguredRun } from "./configure.js";
import type { RunView } from "./runOptions.js";

/** What stages of a run add to its view. */
interface ViewParts {
  /** What the run does or waits for, unless it takes steps. */
  readonly status?: string;
  readonly training?: Training;
  readonly journal?: RunJournal;
  readonly cost?: CostReport;
  /** The step that was recorded last. */
  readonly trace?: StepTrace;
}

/** A view that the stages of a run fill. */
export class GrowingView implements RunView {
  readonly title: string;
  readonly folder: string;
  private parts: ViewParts = {};
  /** What is drawn of the recorded step, which may be long. */
  private devices: { readonly of: StepTrace; readonly sections: readonly PageSection[] } | undefined;

  constructor(private readonly run: ConfiguredRun) {
    this.title = runTitle(run.config);
    this.folder = run.config.out;
  }

  /** Adds parts, and tells whoever shows the view. */
  show(parts: ViewParts): void {
    this.parts = { ...this.parts, ...parts };
    this.changed();
  }

  /** Tells whoever shows the view that it has changed. */
  changed(): void {
    this.run.options.onChange?.(this);
  }

  sections(): PageSection[] {
    const { config, mesh } = this.run;
    const { status = "", training, cost, journal } = this.parts;
    const { steps = [], evaluations = [], samples = [] } = journal ?? {};
    const course = courseReport({ config, mesh, training, cost, steps, evaluations, samples });
    const shown = { id: "status", html: `<p role="status">${escapeHtml(status)}</p>` };
    return [shown, ...courseSections(course), ...this.deviceSections()];
  }

  private deviceSections(): readonly PageSection[] {
    const { config, mesh } = this.run;
    const { training, cost, trace } = this.parts;
    if (!training || !cost || !trace) return [];
    if (this.devices?.of !== trace) {
      const sections = deviceSections(deviceReport({ config, mesh, training, cost, trace }));
      this.devices = { of: trace, sections };
    }
    return this.devices.sections;
  }
}
