/** Texts that join and leave a model while it continues others, in every order that a seed can think of. */
import type { TextGenerator } from "../../../src/train/generation/generator.js";
import { type Change, loadModules, type Setting } from "../load.js";
import { randomFrom } from "../search.js";
import { enterRun, Turns, type TurnsResult, turnsResult } from "./turns.js";

const here = "test/explore/turns/standIns";
const generator = "src/train/generation/generator.ts";

const setting: Setting = {
  isPlain: true,
  simulated: [generator],
  standIns: {
    "src/train/generation/cachedModel.ts": `${here}/model.ts`,
    "src/train/generation/draft.ts": `${here}/draft.ts`,
    "src/platform/system.ts": `${here}/system.ts`,
  },
  constants: [],
  globals: () => ({ AbortController }),
};

export type GeneratorCode = () => typeof TextGenerator;

export async function loadGenerator(changes: readonly Change[] = []): Promise<GeneratorCode> {
  const instantiate = await loadModules(generator, changes, setting);
  return () => instantiate().TextGenerator as typeof TextGenerator;
}

/** What somebody does who wants a text continued. */
interface User {
  readonly tokens: readonly number[];
  readonly maxTokens: number;
  readonly stopToken: number;
  /** How many other things happen before the request is made. */
  readonly delay: number;
  readonly isSlow: boolean;
  /** What the user does after some tokens, instead of reading to the end. */
  readonly leaves: { readonly how: "abort" | "return"; readonly after: number } | undefined;
}

export interface BatchingPlan {
  readonly slots: number;
  readonly maxLength: number;
  readonly users: readonly User[];
  /** The step of the model that fails. */
  readonly failsAt: number | undefined;
  /** How many moments come before the generator is closed. */
  readonly closesAt: number | undefined;
}

export function batchingPlan(seed: number): BatchingPlan {
  const random = randomFrom(seed ^ 0xba7c);
  const below = (n: number) => Math.floor(random() * n);
  const maxLength = 6 + below(8);
  const users = Array.from({ length: 1 + below(6) }, (): User => {
    const how = random() < 0.5 ? ("abort" as const) : ("return" as const);
    return {
      tokens: Array.from({ length: 1 + below(3) }, () => below(vocabSize)),
      maxTokens: below(10),
      stopToken: below(2 * vocabSize),
      delay: below(12),
      isSlow: random() < 0.3,
      leaves: random() < 0.3 ? { how, after: below(4) } : undefined,
    };
  });
  return {
    slots: 1 + below(3),
    maxLength,
    users,
    failsAt: random() < 0.2 ? 1 + below(12) : undefined,
    closesAt: random() < 0.2 ? below(40) : undefined,
  };
}

const vocabSize = 11;

/** The token that follows a text. */
const nextOf = (text: readonly number[]): number =>
  text.reduce((sum, token, i) => (sum * 7 + token + i) % 1009, 5) % vocabSize;

/** A run of a plan, as the model sees it. */
export class BatchingRun {
  readonly vocabSize = vocabSize;
  readonly nextOf = nextOf;
  readonly exits = new Set<() => void>();
  /** What each slot holds. */
  texts: readonly (readonly number[])[] = [];
  /** Steps whose tokens nobody has read or released. */
  numOpen = 0;
  numSteps = 0;
  isClosing = false;
  isReleased = false;
  readonly problems: string[] = [];

  constructor(
    readonly turns: Turns,
    readonly plan: BatchingPlan,
  ) {}

  get failsAt(): number | undefined {
    return this.plan.failsAt;
  }

  wrong(what: string): void {
    this.problems.push(what);
  }
}

/** Runs the plan of a seed. */
export async function runBatching(
  code: GeneratorCode,
  seed: number,
  plan = batchingPlan(seed),
): Promise<TurnsResult<BatchingPlan>> {
  const turns = new Turns(randomFrom(seed));
  const run = new BatchingRun(turns, plan);
  enterRun(run);
  return turnsResult(turns, run, useGenerator(code, run));
}

async function useGenerator(code: GeneratorCode, run: BatchingRun): Promise<void> {
  const { plan, turns } = run;
  const made = new (code())({} as never, {}, { slots: plan.slots, maxLength: plan.maxLength, vocabSize });
  const closing = plan.closesAt === undefined ? undefined : closeLater(made, run, plan.closesAt);
  const users = plan.users.map((user) => useText(made, run, user));
  await turns.until(Promise.all(users), "a reader");
  const stepsWhenAllHadEnded = run.numSteps;
  await turns.rest();
  // A step may be under way when its last reader leaves, and one more may have been started ahead; both are read.
  if (run.numSteps > stepsWhenAllHadEnded + 3) run.wrong("the model continues texts that nobody reads");
  await turns.until(Promise.all([closing, made.close()]), "closing");
  if (made.load.active > 0 || made.load.waiting > 0) run.wrong("a text is left in the generator");
  if (run.texts.some((text) => text.length > 0)) run.wrong("a slot is not empty at the end");
  if (run.numOpen > 0) run.wrong("a step was started and neither read nor released");
}

async function closeLater(made: TextGenerator, run: BatchingRun, delay: number): Promise<void> {
  for (let i = 0; i < delay; i++) await run.turns.moment();
  run.isClosing = true;
  await made.close();
}

/** What a text becomes if nobody leaves. */
function expected({ tokens, maxTokens, stopToken }: User, maxLength: number): string[] {
  const text = [...tokens];
  const drawn: string[] = [];
  while (drawn.length < maxTokens) {
    const token = nextOf(text);
    text.push(token);
    const isLast = drawn.length + 1 === maxTokens || text.length === maxLength;
    const finish = token === stopToken ? "stop" : isLast ? "length" : undefined;
    drawn.push(finish ? `${token} ${finish}` : String(token));
    if (finish) break;
  }
  return drawn;
}

async function useText(made: TextGenerator, run: BatchingRun, user: User): Promise<void> {
  const { turns, plan } = run;
  for (let i = 0; i < user.delay; i++) await turns.moment();
  const controller = new AbortController();
  const got: string[] = [];
  let hasLeft = false;
  try {
    const drawn = made.submit({
      tokens: user.tokens,
      maxTokens: user.maxTokens,
      sampling: { temperature: 0, repetitionPenalty: 1, topK: 0, topP: 1, minP: 0 },
      seed: 1,
      stopTokens: new Set([user.stopToken]),
      signal: controller.signal,
    });
    if (user.leaves?.how === "abort")
      leaveLater(turns, controller, user.leaves.after, () => (hasLeft = true));
    for await (const { token, finish } of drawn) {
      got.push(finish ? `${token} ${finish}` : String(token));
      if (user.leaves?.how === "return" && got.length > user.leaves.after) {
        hasLeft = true;
        break;
      }
      if (user.isSlow) await turns.moment();
    }
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    const isExplained =
      (plan.failsAt !== undefined && text === "the model failed") ||
      (plan.closesAt !== undefined && text === "[generate] the generator is closed");
    if (!isExplained) run.wrong(`a text ended with ${text}`);
    hasLeft = true;
  }
  const wanted = expected(user, plan.maxLength);
  const isWhole = got.length === wanted.length || hasLeft || plan.closesAt !== undefined;
  if (!isWhole || got.some((one, i) => one !== wanted[i]))
    run.wrong(`a text is continued with ${got.join(", ")} instead of ${wanted.join(", ")}`);
}

async function leaveLater(
  turns: Turns,
  controller: AbortController,
  delay: number,
  leaving: () => void,
): Promise<void> {
  for (let i = 0; i < 2 * delay; i++) await turns.moment();
  leaving();
  controller.abort();
}
