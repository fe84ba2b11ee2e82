/** A module as a table: inputs, outputs and variables of every part. */

import { byteSize } from "../../ir/dtype.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { formatType, sizeOf, type TensorType } from "../../ir/shape.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { evalShape } from "../../transforms/makeProgram.js";
import { unbox } from "./metadata.js";
import {
  type AnyFunction,
  type ArgsOf,
  type ModuleCall,
  type ModuleInstance,
  mainMethod,
  nameOfModule,
  observeCalls,
} from "./module.js";
import type { Rngs } from "./rngs.js";
import { isTree } from "./scope.js";

const tabulateOptions = schema({
  /** How deep modules are shown, the module itself being 0; variables of those below count with them. All by default. */
  depth: optional("number"),
  /** Whether calls of a module that was called before are shown; false by default. */
  showRepeated: optional("flag"),
});

/** Options of {@link tabulate}. */
export interface TabulateOptions extends OptionsOf<typeof tabulateOptions> {}

/**
 * The table of a module's parts with inputs, outputs and variables, of which nothing is computed.
 *
 * @example
 * ```ts
 * const table = nn.tabulate(nn.Dense({ features: 3 }), random.key(0))(np.ones([2, 4]));
 * table.includes("Dense"); // true
 * ```
 */
export function tabulate<F extends AnyFunction, M>(
  module: ModuleInstance<F, M>,
  rngs: Rngs,
  options?: TabulateOptions,
): (...args: ArgsOf<F>) => string {
  nameOfModule(module);
  const given = tabulateOptions.read(options, "nn.tabulate");
  return (...args) => {
    const init = (keys: Rngs, ...inner: ArgsOf<F>): unknown => unbox(module.init(keys, ...inner));
    const [types, calls] = observeCalls((): unknown => evalShape(init)(rngs, ...args));
    const variables = isTree(types) ? types : {};
    return render(nameOfModule(module), rowsOf(calls, variables, given), Object.keys(variables));
  };
}

interface Row {
  readonly call: ModuleCall;
  /** The variables of each collection that are shown with the module. */
  readonly shown: Readonly<Record<string, unknown>>;
  /** Those that count as its own. */
  readonly counted: Readonly<Record<string, unknown>>;
}

function rowsOf(
  calls: readonly ModuleCall[],
  variables: Readonly<Record<string, unknown>>,
  { depth = Number.POSITIVE_INFINITY, showRepeated = false }: TabulateOptions,
): Row[] {
  const paths = new Set(calls.map(({ path }) => path.join("/")));
  const seen = new Set<string>();
  return calls.flatMap((call) => {
    const key = call.path.join("/");
    if (call.path.length > depth) return [];
    if (seen.has(key)) return showRepeated ? [{ call, shown: {}, counted: {} }] : [];
    seen.add(key);
    const all = Object.fromEntries(
      Object.entries(variables).map(([collection, values]) => [collection, below(values, call.path)]),
    );
    const shown = Object.fromEntries(
      Object.entries(all).map(([collection, values]) => [collection, own(values, key, paths)]),
    );
    return [{ call, shown, counted: call.path.length === depth ? all : shown }];
  });
}

function below(values: unknown, path: readonly string[]): unknown {
  return path.reduce((at, name) => (isTree(at) ? at[name] : undefined), values);
}

/** The variables of a place without those of the modules below it that have rows of their own. */
function own(values: unknown, key: string, paths: ReadonlySet<string>): unknown {
  if (!isTree(values) || isType(values)) return values;
  return Object.fromEntries(
    Object.entries(values).filter(([name]) => !paths.has(key === "" ? name : `${key}/${name}`)),
  );
}

const isType = (value: unknown): value is TensorType =>
  isTree(value) && Array.isArray(value.shape) && typeof value.dtype === "string";

const typesIn = (values: unknown) =>
  tree
    .flattenWithPath(values, isType)
    .flatMap(({ path, leaf }) => (isType(leaf) ? [{ path, type: leaf }] : []));

const describe = (values: unknown): string[] =>
  tree.flattenWithPath(values).flatMap(({ path, leaf }) => {
    const text = leaf instanceof Tensor ? formatType(leaf.type) : String(leaf);
    return [path === "" ? text : `${path}: ${text}`];
  });

interface Amount {
  readonly elements: number;
  readonly bytes: number;
}

function amountOf(values: unknown): Amount {
  const types = typesIn(values).map(({ type }) => type);
  const total = (of: (type: TensorType) => number) => types.reduce((sum, type) => sum + of(type), 0);
  return {
    elements: total(({ shape }) => sizeOf(shape)),
    bytes: total(({ shape, dtype }) => sizeOf(shape) * byteSize(dtype)),
  };
}

const formatAmount = ({ elements, bytes }: Amount): string =>
  elements === 0 ? "" : `${elements.toLocaleString("en-US")} (${formatBytes(bytes)})`;

function formatBytes(bytes: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const power = Math.min(Math.max(Math.floor(Math.log10(bytes) / 3), 0), units.length - 1);
  const value = bytes / 1000 ** power;
  return `${power === 0 ? value : value.toFixed(1)} ${units[power]}`;
}

const sum = (amounts: readonly Amount[]): Amount => ({
  elements: amounts.reduce((total, { elements }) => total + elements, 0),
  bytes: amounts.reduce((total, { bytes }) => total + bytes, 0),
});

function render(name: string, rows: readonly Row[], collections: readonly string[]): string {
  const header = ["path", "module", "inputs", "outputs", ...collections].map((text) => [text]);
  const body = rows.map(({ call, shown, counted }) => {
    const { path, moduleName, method, args, result } = call;
    const variables = collections.map((collection) => {
      const lines = typesIn(shown[collection]).map(({ path: at, type }) => `${at}: ${formatType(type)}`);
      const amount = formatAmount(amountOf(counted[collection]));
      return amount === "" ? lines : [...lines, amount];
    });
    const called = method === mainMethod ? moduleName : `${moduleName}.${method}`;
    const inputs = args.length === 1 ? args[0] : args;
    return [[path.join("/")], [called], describe(inputs), describe(result), ...variables];
  });
  const totals = collections.map((collection) =>
    sum(rows.map(({ counted }) => amountOf(counted[collection]))),
  );
  const footer = [[""], [""], [""], ["total"], ...totals.map((amount) => [formatAmount(amount)])];
  const all = [header, ...body, footer];
  const widths = header.map((_, i) =>
    Math.max(...all.flatMap((cells) => (cells[i] ?? []).map((text) => text.length))),
  );
  const rule = (left: string, middle: string, right: string) =>
    left + widths.map((width) => "─".repeat(width + 2)).join(middle) + right;
  const lines = (cells: readonly (readonly string[])[]) =>
    Array.from(
      { length: Math.max(1, ...cells.map(({ length }) => length)) },
      (_, line) => `│${widths.map((width, i) => ` ${(cells[i]?.[line] ?? "").padEnd(width)} `).join("│")}│`,
    ).join("\n");
  return [
    `${name} summary`,
    rule("┌", "┬", "┐"),
    all.map(lines).join(`\n${rule("├", "┼", "┤")}\n`),
    rule("└", "┴", "┘"),
    `total parameters: ${formatAmount(sum(totals)) || "none"}`,
  ].join("\n");
}
