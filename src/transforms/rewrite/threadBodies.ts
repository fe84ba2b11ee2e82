/**
 * Threads values through ops with bodies: a pass says which values it adds to which groups of operands and what a body
 * does with them, and gets the same op with these values after the others of their groups, in its operands, in its
 * bodies and in its results.
 */
import {
  type Body,
  type BodyOp,
  bodiesOf,
  type Group,
  type GroupSizes,
  type Groups,
  groupsOf,
  inGroups,
  mapGroups,
  type OpBodies,
  withBodies,
} from "../../ir/bodies.js";
import type { Spec } from "../../ir/mesh.js";
import type { OpParams, ProgramOp } from "../../ir/ops.js";
import { newVar, type Program } from "../../ir/program.js";
import { at, type TensorType, typesOf, withShape } from "../../ir/shape.js";
import { bind, traceFlat } from "../../trace/builder.js";
import type { Tensor } from "../../trace/tensor.js";

/** An operand that is added to an op. */
export interface Extra {
  readonly tensor: Tensor;
  /** Its type inside the bodies; by default that of the tensor, or of a slice of it among the `xs`. */
  readonly type?: TensorType;
  /** How a shard map splits it. */
  readonly spec?: Spec;
}

/** The values that a body or an op had before, and those that are threaded through it. */
export interface Threaded<T = Tensor> {
  readonly own: readonly T[];
  readonly added: Groups<T>;
}

/** Separates the values that an op or a body had from those that were added to its groups. */
function separate<T>(
  order: readonly Group[],
  sizes: GroupSizes,
  extra: GroupSizes,
  list: readonly T[],
): Threaded<T> {
  const all = groupsOf(order, total(sizes, extra), list);
  const size = (group: Group) => sizes[group] ?? 0;
  return {
    own: order.flatMap((group) => all[group]?.slice(0, size(group)) ?? []),
    added: Object.fromEntries(order.map((group) => [group, all[group]?.slice(size(group)) ?? []])),
  };
}

function total(sizes: GroupSizes, extra: GroupSizes): GroupSizes {
  const groups = Object.entries(extra).map(([group, size]) => [group, size + (sizes[group as Group] ?? 0)]);
  return { ...sizes, ...Object.fromEntries(groups) };
}

const sizesOf = (groups: Groups<unknown>): GroupSizes =>
  Object.fromEntries(Object.entries(groups).map(([group, list]) => [group, list.length]));

/** Whether a body computes results, so that passes rewrite it; the others only ignore the values that are added. */
const isRewritten = ({ kind }: Body): boolean => kind === "main" || kind === "forward";

/** An op with bodies to whose operands values are added. */
export class Threading<K extends ProgramOp> {
  readonly form: OpBodies;
  /** The bodies that passes rewrite. */
  readonly bodies: readonly Body[];
  /** All operands, in order. */
  readonly operands: readonly Tensor[];
  private readonly types: Groups<TensorType>;

  constructor(
    private readonly eqn: BodyOp<K>,
    ins: readonly Tensor[],
    private readonly extras: Groups<Extra> = {},
  ) {
    this.form = bodiesOf(eqn);
    this.bodies = this.form.bodies.filter(isRewritten);
    const { operands, sizes } = this.form;
    const tensors = mapGroups(extras, ({ tensor }) => tensor);
    this.operands = inGroups(operands, groupsOf(operands, sizes, ins), tensors);
    this.types = mapGroups(extras, ({ tensor: { type }, type: inside }, group) => {
      return inside ?? (group === "xs" ? withShape(type, type.shape.slice(1)) : type);
    });
  }

  /** The sizes of the groups with what is added to operands. */
  get sizes(): GroupSizes {
    return total(this.form.sizes, sizesOf(this.types));
  }

  /** The types of the inputs of a body. */
  inputTypes({ inputs, program }: Body): TensorType[] {
    return inGroups(inputs, groupsOf(inputs, this.form.sizes, typesOf(program.inputs)), this.types);
  }

  /** Separates the inputs of a body from those that were added. */
  unpack<T>({ inputs }: Body, args: readonly T[]): Threaded<T> {
    return separate(inputs, this.form.sizes, sizesOf(this.types), args);
  }

  /** Traces a body with the added inputs. */
  trace(body: Body, run: (values: Threaded) => Threaded, pass: string): Program {
    const { outputs } = body;
    return traceFlat(
      (args) => {
        const { own, added } = run(this.unpack(body, args));
        return inGroups(outputs, groupsOf(outputs, this.form.sizes, own), added);
      },
      this.inputTypes(body),
      pass,
    ).program;
  }

  /**
   * The parameters of the op.
   *
   * @param programs the bodies that were rewritten
   * @param numAdded how many results are added to each group
   * @param specs how a shard map splits added results
   */
  params(programs: readonly Program[], numAdded: GroupSizes, specs: readonly Spec[] = []): OpParams[K] {
    const { bodies, sizes } = this.form;
    const { outputs } = at(this.bodies, 0);
    const outTypes = separate(outputs, sizes, numAdded, typesOf(at(programs, 0).outputs)).added;
    const next = programs.values();
    const all = bodies.map((body) => {
      const rewritten = isRewritten(body) ? next.next().value : undefined;
      return rewritten ?? ignoring(body, sizes, { ...outTypes, ...this.types });
    });
    const inSpecs = this.extras.consts?.map(({ spec = [] }) => spec) ?? [];
    return withBodies(this.eqn, all, this.sizes, (ins, outs) => ({
      inSpecs: [...ins, ...inSpecs],
      outSpecs: [...outs, ...specs],
    }));
  }

  /** Applies the op with other bodies; see {@link params}. */
  bind(programs: readonly Program[], numAdded: GroupSizes, specs: readonly Spec[] = []): Threaded {
    const { results, sizes } = this.form;
    const outs = bind(this.eqn.op, this.operands, this.params(programs, numAdded, specs));
    return separate(results, sizes, numAdded, outs);
  }

  /** Traces all bodies and applies the op with them. */
  apply(
    run: (body: Body, values: Threaded) => Threaded,
    pass: string,
    specs: readonly Spec[] = [],
  ): Threaded {
    let numAdded: GroupSizes = {};
    const programs = this.bodies.map((body) => {
      const runBody = (values: Threaded): Threaded => {
        const result = run(body, values);
        numAdded = sizesOf(result.added);
        return result;
      };
      return this.trace(body, runBody, pass);
    });
    return this.bind(programs, numAdded, specs);
  }
}

/** A body that does not read the values that are added to its inputs. */
function ignoring({ program, inputs }: Body, sizes: GroupSizes, types: Groups<TensorType>): Program {
  const own = groupsOf(inputs, sizes, program.inputs);
  return { ...program, inputs: inGroups(inputs, own, mapGroups(types, newVar)) };
}

/** Tensors as extra operands. */
export const extrasOf = (tensors: readonly Tensor[]): Extra[] => tensors.map((tensor) => ({ tensor }));
