/** One training run from its configuration: data, devices, steps, checkpoints and what tells how it goes. */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { describeProducts } from "../../ir/engineReports.js";
import { needOptions } from "../../ir/options.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { checkMemory } from "../config/memoryNeed.js";
import { modelConfig, type RunConfig } from "../config/runConfig.js";
import {
  checkpointFolder,
  numParameters,
  runMesh,
  runTrainingFunctions,
  splittingAxes,
} from "../config/setup.js";
import type { Batches } from "../data/batches.js";
import { type Checkpoint, type Checkpoints, openCheckpoints } from "../files/checkpoint.js";
import type { Json } from "../files/checkpointManifest.js";
import { FileError, reasonOf } from "../files/fileError.js";
import { replaceFile } from "../files/files.js";
import { processGroupOf } from "../files/processGroup.js";
import { flightFolder, recordFlight } from "../folder/flight.js";
import { RunJournal } from "../folder/journal.js";
import { restoreRun } from "../folder/savedRun.js";
import { RunSaves } from "../folder/saves.js";
import { measurePeak } from "../report/peak.js";
import {
  diverged,
  firstBadLeaf,
  isFiniteStep,
  originOfExplosion,
  originOfNonFinite,
  problemOf,
  type StepValues,
} from "../step/health.js";
import type { LanguageModelState, StepMetrics } from "../step/state.js";
import type { Training } from "../step/training.js";
import { verifyDeterminism } from "./determinism.js";
import { endRun, type RunEnding } from "./ending.js";
import { evaluateOn } from "./evaluation.js";
import { explain, withRecording } from "./failures.js";
import { agreedOptions, agreeOn, lockTogether } from "./processes.js";
import { openRunBatches, placeBatch } from "./runBatches.js";
import { openRunData, type RunData } from "./runData.js";
import type { RunOptions, RunOutcome } from "./runOptions.js";
import { startingPoint } from "./startingPoint.js";

/** Trains a model as a configuration says; see `docs/guide.md` for what it writes and where. */
export async function trainRun(asked: RunOptions): Promise<RunOutcome> {
  needOptions<RunOptions>(
    asked,
    {
      config: true,
      resume: true,
      signal: true,
      stream: true,
      engine: true,
      onStep: true,
      finish: true,
      verifiesDeterminism: true,
      onBegin: true,
    },
    "trainRun",
  );
  const mesh = runMesh(asked.config, asked.engine);
  const group = processGroupOf(mesh.engine);
  const options = await agreedOptions(asked, group);
  const { config, resume = false, stream = process.stderr } = options;
  const release = await lockTogether(config.out, group);
  const checkpoints = openCheckpoints(checkpointFolder(config.out), {
    keep: config.keep,
    processGroup: group,
  });
  try {
    const from = await startingPoint(checkpoints, config, resume, (text) => stream.write(`${text}\n`));
    await agreeOn(group, "the step to go on from", String(from?.step ?? 0));
    const data = await openRunData(config, config.out, { begun: from !== undefined });
    const run = new Run(options, mesh, data, checkpoints, from);
    mesh.engine.keepFlightsIn?.(flightFolder(config.out));
    try {
      return await run.train();
    } catch (cause) {
      throw withRecording(cause, run.record(reasonOf(cause)));
    } finally {
      // A save that is under way when something else fails is still a good one.
      await checkpoints.finished().catch(() => {});
      run.close();
    }
  } catch (cause) {
    throw await explain(cause, config.out, checkpoints);
  } finally {
    release();
  }
}

/** Tokens of one step on their devices, and where the data stands after them. */
interface Ready {
  readonly tokens: Tensor;
  readonly position: Json;
}

/** A step whose numbers are not read yet. */
interface Unread {
  readonly step: number;
  readonly metrics: StepMetrics;
  /** The tokens of the step, kept until it is known to be good. */
  readonly tokens: Tensor;
  /** Where the data stood before the step. */
  readonly before: Json;
}

/** A run while it goes. */
class Run {
  private readonly config: RunConfig;
  private readonly options: RunOptions;
  private readonly data: RunData;
  private readonly checkpoints: Checkpoints;
  private readonly from: Checkpoint | undefined;
  private readonly mesh: Mesh;
  /** Whether this process is the one that writes. */
  private readonly isFirst: boolean;
  private readonly training: Training;
  private readonly batches: Batches;
  private readonly journal: RunJournal;
  private readonly saves: RunSaves;

  constructor(
    options: RunOptions,
    mesh: Mesh,
    data: RunData,
    checkpoints: Checkpoints,
    from: Checkpoint | undefined,
  ) {
    const { config } = options;
    this.options = options;
    this.config = config;
    this.data = data;
    this.checkpoints = checkpoints;
    this.from = from;
    this.mesh = mesh;
    this.isFirst = mesh.engine.process.index === 0;
    this.training = runTrainingFunctions(config, data.tokenizer.vocabSize, this.mesh);
    this.batches = this.openBatches();
    const { stream, onStep } = options;
    this.journal = new RunJournal({
      config,
      types: this.training.types,
      from,
      isFirst: this.isFirst,
      ...(stream ? { stream } : {}),
      ...(onStep ? { onStep } : {}),
    });
    this.saves = new RunSaves(config, this.training, checkpoints, from, (text) => this.journal.note(text));
  }

  async train(): Promise<RunOutcome> {
    const { config, training, from } = this;
    await this.announce();
    const host = this.options.onBegin?.({ record: (reason) => this.record(reason) });
    this.journal.peak = await measurePeak(this.mesh);
    if (this.options.verifiesDeterminism) await this.verifyDeterminism();
    let state = from ? await this.restore(from) : training.init(config.seed);
    let step = from?.step ?? 0;
    let position = this.batches.position();
    let unread: Unread | undefined;
    let isCompiled = false;
    // Processes that looked at their clocks would not save together.
    const isAlone = this.mesh.engine.process.count === 1;
    let next = step < config.steps ? this.ready() : undefined;
    this.journal.startClock();
    const settle = async () => {
      const last = unread;
      unread = undefined;
      if (last) await this.read(last, state);
    };
    while (step < config.steps && next && !this.stopRequested) {
      const batch: Ready = await next;
      if (!isCompiled) this.compileOthers(state, batch.tokens);
      const [changed, metrics] = training.step(state, batch.tokens, unread?.metrics);
      if (!isCompiled) host?.listen();
      isCompiled = true;
      state = changed;
      step++;
      const previous = position;
      position = batch.position;
      next = step < config.steps ? this.ready() : undefined;
      // The numbers of the step before are read while this one runs, so that no device waits for the host.
      await settle();
      unread = { step, metrics, tokens: batch.tokens, before: previous };
      // What is recorded of a step is on the disk before a checkpoint from which it would not be done again.
      if (step % config.evalEvery === 0 || step === config.steps) {
        await settle();
        await this.evaluate(state, step);
      }
      if (step % config.checkpointEvery === 0 && step < config.steps) {
        await settle();
        await this.saves.save(state, step, position);
      } else if (this.saves.isDue && isAlone && step < config.steps) {
        await settle();
        await this.saves.retry(state, step, position);
      }
    }
    await settle();
    (await next)?.tokens.dispose();
    await this.saves.settled();
    if (this.saves.step !== step || !this.saves.folder) await this.saves.save(state, step, position, true);
    await this.checkpoints.finished();
    return this.outcome(state, step);
  }

  /** Compiles what runs between steps, so that no signal waits for the compiler when there is something to save. */
  private compileOthers(state: LanguageModelState, tokens: Tensor): void {
    this.training.isFinite(state).dispose();
    if (this.data.validation) this.training.evaluate(state, tokens).dispose();
  }

  /** Ends a run whose steps are done, and says how it ended; the state is used up. */
  private async outcome(state: LanguageModelState, step: number): Promise<RunOutcome> {
    const { config, from, journal } = this;
    journal.finish();
    const isDone = step >= config.steps;
    const isClosing = isDone && this.options.finish !== false;
    const { sample, files } =
      isClosing && !this.stopRequested ? await this.end(state) : { sample: "", files: {} };
    tree.dispose(state);
    return {
      status: isDone && !(isClosing && this.stopRequested) ? "finished" : "stopped",
      step,
      resumedFrom: from?.step ?? 0,
      folder: config.out,
      checkpoint: this.saves.folder ?? "",
      steps: journal.steps,
      evaluations: journal.evaluations,
      sample,
      files: { metrics: journal.file, ...files },
    };
  }

  close(): void {
    this.journal.close();
  }

  /** Writes what the devices did last into the run's folder. */
  record(reason: string): string | undefined {
    return recordFlight(this.mesh.engine, this.config.out, reason);
  }

  /** The state of a checkpoint, which must be finite: one that is not would only be saved again. */
  private async restore(from: Checkpoint): Promise<LanguageModelState> {
    const state = await restoreRun(from, this.training);
    const verdict = this.training.isFinite(state);
    const isGood = (await verdict.item()) !== 0;
    verdict.dispose();
    if (isGood) return state;
    const bad = await firstBadLeaf(state);
    const rule = `its tensors are not all finite${bad ? `; the first one is ${bad.path}` : ""}: remove this checkpoint to go on from the one before it, or start a new run`;
    throw new FileError("resume", from.folder, 0, rule);
  }

  private openBatches(): Batches {
    const { config, data, from } = this;
    return openRunBatches(data.training, this.training, config, {
      seed: config.seed,
      ...(from ? { position: from.manifest.data } : {}),
    });
  }

  private async verifyDeterminism(): Promise<void> {
    const tokens = await placeBatch(await this.openBatches().next(), this.training);
    const { numTensors, sha256 } = await verifyDeterminism(this.training, this.config.seed, tokens);
    tokens.dispose();
    this.journal.note(
      `the first step gives the same bits twice: ${numTensors} tensors, SHA-256 ${sha256.slice(0, 16)}…`,
    );
  }

  private get stopRequested(): boolean {
    return this.options.signal?.aborted === true;
  }

  /** Says and writes down what will be trained where, and refuses what devices have no memory for. */
  private async announce(): Promise<void> {
    const { config } = this;
    if (this.isFirst) {
      await replaceFile(join(config.out, "config.json"), `${JSON.stringify(config, null, 2)}\n`);
    }
    this.journal.note(this.introduction());
    checkMemory(this.config, this.data.tokenizer.vocabSize, this.training, this.mesh);
  }

  private introduction(): string {
    const { config, mesh, from, data } = this;
    const axes = splittingAxes(mesh.axes);
    const count = numParameters(this.training.types);
    const devices = `${mesh.size} ${mesh.size === 1 ? "device" : "devices"}${axes.length > 0 ? ` (${axes.join(", ")})` : ""}`;
    const start = from ? `, from step ${from.step}` : "";
    const what = `${config.model.kind} with ${(count / 1e6).toFixed(2)} M parameters on ${devices}, ${data.training.numTokens.toLocaleString("en-US")} tokens, ${config.steps} steps${start}`;
    const info = mesh.engine.info?.();
    const products = (info && describeProducts(info)) ?? [];
    return [what, products, `writing to ${config.out}`].flat().join("; ");
  }

  /** The next batch on its devices. */
  private ready(): Promise<Ready> {
    const read = async () => {
      const batch = await this.batches.next();
      const position = this.batches.position();
      return { tokens: await placeBatch(batch, this.training), position };
    };
    const batch = read();
    // It is awaited a step later; a failure is reported there.
    batch.catch(() => {});
    return batch;
  }

  /** Reads and records what a step told; throws when it went wrong. */
  private async read(unread: Unread, state: LanguageModelState): Promise<void> {
    const { step, metrics } = unread;
    const values = await readValues(metrics);
    await this.journal.told(step, values);
    const vocabSize = modelConfig(this.config, this.data.tokenizer.vocabSize).vocabSize;
    const problem = problemOf(values, vocabSize);
    if (problem === undefined) unread.tokens.dispose();
    else throw await this.failure(unread, problem, values, state);
  }

  /** Finds out what a step went wrong with, and saves the state from before it if that is still there. */
  private async failure(
    { step, tokens, before }: Unread,
    problem: string,
    values: StepValues,
    state: LanguageModelState,
  ): Promise<Error> {
    await this.checkpoints.finished().catch(() => {});
    if (isFiniteStep(values)) {
      const origin = await originOfExplosion(state, values);
      return diverged({ step, problem, origin, kept: this.saves.folder });
    }
    this.journal.note(`step ${step}: ${problem}; looking for the tensor that it began with`);
    const origin = await originOfNonFinite(this.training, state, tokens, values);
    const { saves } = this;
    const earlier = saves.folder;
    const isRescued = step - 1 > saves.step && (await saves.rescue(state, step - 1, before));
    if (!isRescued) return diverged({ step, problem, origin, kept: earlier });
    // Only as many checkpoints are kept as the configuration says.
    const kept = earlier !== undefined && existsSync(earlier) ? earlier : undefined;
    return diverged({ step, problem, origin, kept, rescued: saves.folder });
  }

  private async evaluate(state: LanguageModelState, step: number): Promise<void> {
    const { validation } = this.data;
    if (!validation) return;
    const loss = await evaluateOn(this.training, state, validation, this.config);
    this.journal.evaluated(step, loss);
  }

  /** Sample, trace and report; the state is used up. */
  private end(state: LanguageModelState): Promise<RunEnding> {
    const { config, mesh, training, data } = this;
    const { steps, evaluations } = this.journal;
    const { signal } = this.options;
    const run = { config, mesh, training, data, steps, evaluations, ...(signal ? { signal } : {}) };
    return endRun(run, state, async () => (await this.ready()).tokens);
  }
}

async function readValues(metrics: StepMetrics): Promise<StepValues> {
  const [loss, crossEntropy, gradientNorm, gradientSquares, numUpdates, lossScale] = await Promise.all([
    metrics.loss.item(),
    metrics.crossEntropy.item(),
    metrics.gradientNorm.item(),
    metrics.gradientSquares.data(),
    metrics.numUpdates.item(),
    metrics.lossScale?.item(),
  ]);
  tree.dispose(metrics);
  const told = { loss, crossEntropy, gradientNorm, gradientSquares, numUpdates };
  return lossScale === undefined ? told : { ...told, lossScale };
}
