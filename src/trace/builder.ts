import { Ambient } from "../ir/ambient.js";
import { TracerError } from "../ir/errors.js";
import { inferTypes } from "../ir/infer/infer.js";
import { isLike, isWellTyped, noteWellTyped, typesOfRepeated } from "../ir/infer/repeated.js";
import { missingAxes, needNoMarks, operandVarying, varyingAlong, varyingAxes } from "../ir/infer/varying.js";
import type { OpName, OpParams } from "../ir/ops.js";
import { afterPass, checksPasses } from "../ir/passes.js";
import {
  type Atom,
  type Eqn,
  type EqnParts,
  makeEqn,
  mapOperands,
  newVar,
  type Program,
  type SourceLocation,
  type Var,
} from "../ir/program.js";
import { at, type TensorType } from "../ir/shape.js";
import { printProgram } from "../ir/text/print.js";
import { commonTarget, type ExecutionTarget } from "./executionTarget.js";
import { opKey } from "./opKey.js";
import { currentOrder } from "./order.js";
import { needTensors } from "./promote.js";
import { currentRuntime } from "./runtime.js";
import { captureSource } from "./source.js";
import { Tensor } from "./tensor.js";

/** A program under construction. Values from outside that it reads become its first inputs. */
export class Builder {
  private readonly eqns: Eqn[] = [];
  private readonly inputs: Var[] = [];
  private readonly captured = new Map<Tensor, Var>();
  private target: ExecutionTarget | undefined;
  /** Cleared when tracing ends; tensors used after that have leaked. */
  open = true;
  /** How often what is recorded will be differentiated. */
  readonly order = currentOrder();

  input(type: TensorType): Tensor {
    const variable = newVar(type);
    this.inputs.push(variable);
    return Tensor.traced(this, variable);
  }

  /** The value of a tensor inside this program; one from outside is captured. */
  atom(tensor: Tensor, caller: string): Atom {
    const { node } = tensor;
    if (node.kind === "literal") return node.literal;
    if (node.kind === "traced") {
      if (node.builder === this) return node.atom;
      if (!node.builder.open) throw leaked(caller, tensor);
    }
    let variable = this.captured.get(tensor);
    if (!variable) {
      variable = newVar(tensor.type);
      this.captured.set(tensor, variable);
    }
    return variable;
  }

  add<K extends OpName>(op: K, ins: readonly Tensor[], params: OpParams[K]): Tensor[] {
    const atoms = this.agree(
      op,
      ins.map((tensor) => this.atom(tensor, op)),
      params,
    );
    return this.push(op, atoms, inferTypes(op, atoms, params), params, true);
  }

  /** Records an equation of another program on other operands; where their types are the same, so are the results'. */
  repeat<K extends OpName>(eqn: EqnParts<K>, ins: readonly Tensor[]): Tensor[] {
    const { op, params } = eqn;
    const atoms = ins.map((tensor) => this.atom(tensor, op));
    const types = typesOfRepeated(eqn, atoms);
    if (!types) return this.add(op, ins, params);
    return this.push(op, atoms, types, params, !checksPasses && isWellTyped(eqn));
  }

  /**
   * Records the equations of a program as they are, with their values, on operands of the types of its inputs; does
   * nothing where operands have other types. None of the values may be in this program already.
   */
  take({ inputs, eqns, outputs }: Program, ins: readonly Tensor[]): Tensor[] | undefined {
    const given = new Map<number, Atom>();
    for (const [i, input] of inputs.entries()) {
      const atom = this.atom(at(ins, i), "inline");
      if (!isLike(atom, input)) return undefined;
      given.set(input.id, atom);
    }
    const resolve = (atom: Atom): Atom => (atom.kind === "var" ? (given.get(atom.id) ?? atom) : atom);
    for (const eqn of eqns) {
      const own = mapOperands(
        eqn.source ? eqn : { ...eqn, source: pinned.get() ?? captureSource() },
        resolve,
      );
      if (own !== eqn && isWellTyped(eqn)) noteWellTyped(own);
      this.eqns.push(own);
    }
    return outputs.map((output) => {
      const atom = resolve(output);
      return atom.kind === "literal" ? Tensor.literal(atom) : Tensor.traced(this, atom);
    });
  }

  private push<K extends OpName>(
    op: K,
    atoms: readonly Atom[],
    types: readonly TensorType[],
    params: OpParams[K],
    isChecked: boolean,
  ): Tensor[] {
    const outs = types.map(newVar);
    const eqn = makeEqn<OpName>(op, atoms, outs, params, pinned.get() ?? captureSource());
    if (isChecked) noteWellTyped(eqn);
    this.eqns.push(eqn);
    return outs.map((out) => Tensor.traced(this, out));
  }

  /** The operands; those that are equal along an axis are marked where they are combined with others that are not. */
  private agree<K extends OpName>(op: K, atoms: readonly Atom[], params: OpParams[K]): readonly Atom[] {
    if (needNoMarks(op, atoms)) return atoms;
    const wanted = operandVarying(op, atoms, params);
    return atoms.map((atom, i) => {
      const over = missingAxes(varyingAxes(atom.type), at(wanted, i));
      if (over.length === 0) return atom;
      const out = newVar(varyingAlong(atom.type, at(wanted, i)));
      this.eqns.push(makeEqn<OpName>("pvary", [atom], [out], { over }, pinned.get() ?? captureSource()));
      return out;
    });
  }

  /** Notes where what is recorded must run; a second target is refused. */
  runsOn(target: ExecutionTarget | undefined): void {
    if (target !== undefined) this.target = commonTarget([this.target, target]);
  }

  finish(outputs: readonly Tensor[]): Traced {
    const atoms = outputs.map((tensor) => this.atom(tensor, "trace"));
    const inputs = [...this.captured.values(), ...this.inputs];
    const program = { inputs, eqns: this.eqns, outputs: atoms };
    return { program, captures: [...this.captured.keys()], target: this.target };
  }
}

/** A traced function. The program's inputs are the captures and then the arguments. */
export interface Traced {
  readonly program: Program;
  /** The values from outside that the function read. */
  readonly captures: readonly Tensor[];
  /** Where the program must run, if the function named a mesh: programs themselves know only its shape. */
  readonly target: ExecutionTarget | undefined;
}

const building = new Ambient<Builder | undefined>({
  name: "program that is traced",
  initial: undefined,
  setBy: "tracing",
  dependence: { unkeyed: "a trace does not depend on the one around it unless it captures values of that" },
});

const pinned = new Ambient<SourceLocation | undefined>({
  name: "source of equations",
  initial: undefined,
  setBy: "tracing",
  dependence: { unkeyed: "it only says which line equations come from" },
});

/**
 * Runs `fn` so that the equations it records have the given source: for rewriting an equation, whose line the
 * user wrote, into others.
 */
export function atSource<T>(source: SourceLocation | undefined, fn: () => T): T {
  return pinned.within(source ?? pinned.get(), fn);
}

/**
 * Runs `fn` so that all equations it records have the source of this call. For library functions that do not call user
 * code: their caller is looked up once instead of for every equation.
 */
export function asOneCall<T>(fn: () => T): T {
  return pinned.get() ? fn() : atSource(captureSource(), fn);
}

/** {@link asOneCall} while a function is traced: ops that are computed immediately rarely need a source. */
export function tracedAsOneCall<T>(fn: () => T): T {
  return isTracing() ? asOneCall(fn) : fn();
}

/**
 * How often results of the tensors will be differentiated: values from outside a derivative being taken are constants
 * in it.
 */
export function orderOf(tensors: readonly Tensor[]): number {
  const orders = tensors.map(({ node }) => (node.kind === "traced" ? node.builder.order : 0));
  return Math.min(currentOrder(), Math.max(0, ...orders));
}

/** Whether a function is being traced now. */
export function isTracing(): boolean {
  return building.get() !== undefined;
}

/**
 * Runs `fn` on placeholders of the given types and records what it does. A target that it names is also where the
 * surrounding trace must run.
 *
 * @param pass the name of the pass that traces, for the message if the program turns out to be invalid
 */
export function traceFlat(
  fn: (args: Tensor[]) => readonly Tensor[],
  types: readonly TensorType[],
  pass = "trace",
): Traced {
  const traced = record(new Builder(), fn, types);
  afterPass(pass, traced.program, "traced");
  building.get()?.runsOn(traced.target);
  return traced;
}

function record(
  builder: Builder,
  fn: (args: Tensor[]) => readonly Tensor[],
  types: readonly TensorType[],
): Traced {
  try {
    return building.within(builder, () => builder.finish(fn(types.map((type) => builder.input(type)))));
  } finally {
    builder.open = false;
  }
}

/**
 * Applies an op: recorded while tracing, computed immediately otherwise.
 *
 * @param target where it must run, if it or a program inside it names a mesh
 */
export function bind<K extends OpName>(
  op: K,
  ins: readonly Tensor[],
  params: OpParams[K],
  target?: ExecutionTarget,
): Tensor[] {
  needTensors(ins, "the operands", op);
  const builder = building.get();
  if (builder) {
    builder.runsOn(target);
    return builder.add(op, ins, params);
  }
  for (const tensor of ins) {
    if (tensor.node.kind === "traced") throw leaked(op, tensor);
  }
  const operands = ins.filter((tensor) => tensor.node.kind === "array");
  const program = () => traceOp(op, ins, params);
  const key = opKey(op, ins, params);
  if (key !== undefined) return currentRuntime().run(key, program, operands, target);
  return runProgram(program(), operands, target);
}

/** The program of one op on concrete tensors; all but scalar constants are its inputs. */
function traceOp<K extends OpName>(op: K, ins: readonly Tensor[], params: OpParams[K]): Program {
  const isInput = (tensor: Tensor) => tensor.node.kind === "array";
  return traceFlat(
    (args) => {
      const rest = args.values();
      return bind(
        op,
        ins.map((tensor) => (isInput(tensor) ? (rest.next().value ?? tensor) : tensor)),
        params,
      );
    },
    ins.filter(isInput).map((tensor) => tensor.type),
  ).program;
}

function runProgram(program: Program, ins: readonly Tensor[], target: ExecutionTarget | undefined): Tensor[] {
  const weak = program.outputs.map(({ type }) => (type.weak ? "?" : "-")).join("");
  return currentRuntime().run(`${printProgram(program)}${weak}`, () => program, ins, target);
}

/**
 * Applies the op of an equation to other operands; while tracing, types are inferred only where those of the operands
 * differ from the equation's.
 */
export function repeat<K extends OpName>(eqn: EqnParts<K>, ins: readonly Tensor[]): Tensor[] {
  const builder = building.get();
  return builder ? builder.repeat(eqn, ins) : bind(eqn.op, ins, eqn.params);
}

/** {@link bind} for ops with one result. */
export function bind1<K extends OpName>(
  op: K,
  ins: readonly Tensor[],
  params: OpParams[K],
  target?: ExecutionTarget,
): Tensor {
  const [out] = bind(op, ins, params, target);
  if (!out) throw new TracerError("traced-value", `[${op}] has no result`);
  return out;
}

/**
 * Applies a program: its equations are inlined while tracing, it is run as a whole otherwise.
 *
 * @param target where it must run, if the function it was traced from named a mesh
 */
export function callProgram(program: Program, ins: readonly Tensor[], target?: ExecutionTarget): Tensor[] {
  return isTracing() ? inline(program, ins, target) : runProgram(program, ins, target);
}

/** {@link callProgram} for a program that is used only here: its equations need not be copied. */
export function callOnce(program: Program, ins: readonly Tensor[], target?: ExecutionTarget): Tensor[] {
  return isTracing() ? inlineOnce(program, ins, target) : runProgram(program, ins, target);
}

/** Records the equations of a program in the current trace, applied to the given values. */
export function inline(program: Program, ins: readonly Tensor[], target?: ExecutionTarget): Tensor[] {
  building.get()?.runsOn(target);
  const environment = new Environment(program.inputs, ins);
  for (const eqn of program.eqns) rebind(eqn, environment);
  return environment.read(program.outputs);
}

/**
 * {@link inline} for a program that occurs nowhere else in the current trace: its equations are recorded without
 * copying.
 */
export function inlineOnce(program: Program, ins: readonly Tensor[], target?: ExecutionTarget): Tensor[] {
  const builder = building.get();
  builder?.runsOn(target);
  return builder?.take(program, ins) ?? inline(program, ins, target);
}

/** Records an equation again with the tensors that stand for its operands. */
export function rebind(eqn: Eqn, environment: Environment): void {
  const outs = atSource(eqn.source, () => repeat<OpName>(eqn, environment.read(eqn.ins)));
  environment.define(eqn.outs, outs);
}

/** The tensors that stand for a program's values while it is rewritten. */
export class Environment {
  private readonly values = new Map<number, Tensor>();

  constructor(vars: readonly Var[], tensors: readonly Tensor[]) {
    this.define(vars, tensors);
  }

  define(vars: readonly Var[], tensors: readonly Tensor[]): void {
    vars.forEach((variable, i) => {
      const tensor = tensors[i];
      if (tensor) this.values.set(variable.id, tensor);
    });
  }

  read(atoms: readonly Atom[]): Tensor[] {
    return atoms.map((atom) => {
      if (atom.kind === "literal") return Tensor.literal(atom);
      const tensor = this.values.get(atom.id);
      if (!tensor) throw new TracerError("leaked-tracer", `a program reads a value that was never defined`);
      return tensor;
    });
  }
}

function leaked(caller: string, tensor: Tensor): TracerError {
  return new TracerError(
    "leaked-tracer",
    `[${caller}] ${tensor} was used after the function that made it had been traced: return it from that function instead of storing it outside`,
  );
}
