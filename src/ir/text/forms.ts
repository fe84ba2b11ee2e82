import { HostFunction } from "../callbacks.js";
import { type DType, dtypes, shortName } from "../dtype.js";
import {
  type DimConstraint,
  formatMesh,
  formatSpec,
  type MeshAxis,
  type MeshShape,
  type Spec,
} from "../mesh.js";
import { type ControlRole, type RematPolicy, rematPolicyKinds } from "../ops.js";
import { formatType, type TensorType } from "../shape.js";
import type { Scanner } from "./scanner.js";

/** How a parameter is printed and parsed. */
export interface ParamForm<T> {
  print(value: T): string;
  parse(scanner: Scanner): T;
  /** Set for parameters at the end of an op's list that may be missing, in which case they are not printed. */
  readonly isOptional?: true;
}
export const count: ParamForm<number> = { print: String, parse: (scanner) => scanner.integer("an integer") };

export const number: ParamForm<number> = {
  print: String,
  parse: (scanner) => Number(scanner.number() ?? scanner.fail("a number")),
};

export const flag: ParamForm<boolean> = {
  print: String,
  parse: (scanner) =>
    scanner.eat("true") ? true : scanner.eat("false") ? false : scanner.fail("true or false"),
};

export const text: ParamForm<string> = {
  print: (value) => JSON.stringify(value),
  parse: (scanner) => scanner.string("a name"),
};

/** One of some names. */
export function among<T extends string>(what: string, names: readonly T[]): ParamForm<T> {
  return {
    print: String,
    parse(scanner) {
      const start = scanner.here;
      const name = scanner.word(what);
      return names.find((one) => one === name) ?? scanner.failAt(start, what);
    },
  };
}

/** One of the names that are listed, all of a type. */
export function oneOf<T extends string>(names: { readonly [N in T]: true }): ParamForm<T> {
  const all = Object.keys(names) as T[];
  return among(all.join(" or "), all);
}

export const dtype = among(`a data type (${dtypes.join(", ")})`, dtypes);

const byShortName = new Map(dtypes.map((name): [string, DType] => [shortName(name), name]));

/** A type such as `f32[4,8]`. */
export const plainType: ParamForm<TensorType> = {
  print: formatType,
  parse(scanner) {
    const start = scanner.here;
    const name = byShortName.get(scanner.word("a type such as f32[4,8]"));
    if (!name) {
      return scanner.failAt(start, `a type such as f32[4,8] (${[...byShortName.keys()].join(", ")})`);
    }
    const shape = scanner.list("[", "]", () => {
      const sizeStart = scanner.here;
      const size = scanner.integer("the size of a dim");
      return size >= 0 ? size : scanner.failAt(sizeStart, "a size of at least 0");
    });
    return { dtype: name, shape };
  },
};

/** A host callback by its label: programs that call one can be parsed only in the process that has the function. */
export const hostFunction: ParamForm<HostFunction> = {
  print: ({ label }) => JSON.stringify(label),
  parse(scanner) {
    const start = scanner.here;
    const label = scanner.string("the label of a function");
    return (
      HostFunction.labelled(label) ??
      scanner.failAt(
        start,
        "a function of this process: programs that call the host can only be read in the process that made them",
      )
    );
  },
};

export function list<T>(form: ParamForm<T>, separator = ","): ParamForm<readonly T[]> {
  return {
    print: (values) => `[${values.map((value) => form.print(value)).join(separator)}]`,
    parse: (scanner) => scanner.list("[", "]", () => form.parse(scanner)),
  };
}

export const counts = list(count);

/** An axis name, quoted unless it is an identifier. */
function axisName(scanner: Scanner): string {
  return scanner.sees('"') ? scanner.string("an axis name") : scanner.word("an axis name");
}

/** Axes with their sizes, such as `{data: 2}`. */
export const axes: ParamForm<readonly MeshAxis[]> = {
  print: (value) => formatMesh({ axes: value }),
  parse: (scanner) =>
    scanner.list("{", "}", () => {
      const name = axisName(scanner);
      scanner.expect(":");
      return { name, size: scanner.integer("the size of the axis") };
    }),
};

export const mesh: ParamForm<MeshShape> = {
  print: formatMesh,
  parse: (scanner) => ({ axes: axes.parse(scanner) }),
};

export const constraint: ParamForm<readonly DimConstraint[]> = {
  print: formatSpec,
  parse(scanner) {
    scanner.expect("P");
    return scanner.list("(", ")", (): DimConstraint => {
      if (scanner.eat("UNCONSTRAINED")) return "unconstrained";
      if (scanner.eat("null")) return [];
      const axis = () => scanner.string("the name of an axis");
      if (scanner.sees("[")) return scanner.list("[", "]", axis);
      return scanner.sees('"') ? [axis()] : scanner.fail("an axis, a list of axes, null or UNCONSTRAINED");
    });
  },
};

const spec: ParamForm<Spec> = {
  print: formatSpec,
  parse(scanner) {
    const start = scanner.here;
    const dims = constraint.parse(scanner).map((dim) => (dim === "unconstrained" ? undefined : dim));
    return dims.every((dim) => dim !== undefined)
      ? dims
      : scanner.failAt(start, "a spec without UNCONSTRAINED");
  },
};

export const specs = list(spec, ", ");

/** Two values with a mark between them. */
export function pairOf<T>(form: ParamForm<T>, mark: string): ParamForm<readonly [T, T]> {
  return {
    print: ([first, second]) => `${form.print(first)}${mark}${form.print(second)}`,
    parse(scanner) {
      const first = form.parse(scanner);
      scanner.expect(mark);
      return [first, form.parse(scanner)];
    },
  };
}

export const hops = list(pairOf(count, "→"), ", ");

/** Maximum nesting of policies, so that a hostile input cannot exhaust the stack. */
const MAX_POLICIES = 64;

export const policy: ParamForm<RematPolicy> = {
  print(value) {
    switch (value.kind) {
      case "names":
      case "exceptNames":
        return `${value.kind}(${value.names.map(text.print).join(", ")})`;
      case "either":
        return `either(${value.policies.map(policy.print).join(", ")})`;
      default:
        return value.kind;
    }
  },
  parse: (scanner) => parsePolicy(scanner, 0),
};

const policyKind = oneOf<RematPolicy["kind"]>(rematPolicyKinds);

function parsePolicy(scanner: Scanner, depth: number): RematPolicy {
  if (depth > MAX_POLICIES) scanner.fail(`at most ${MAX_POLICIES} nested policies`);
  const kind = policyKind.parse(scanner);
  switch (kind) {
    case "names":
    case "exceptNames":
      return { kind, names: scanner.list("(", ")", () => text.parse(scanner)) };
    case "either":
      return { kind, policies: scanner.list("(", ")", () => parsePolicy(scanner, depth + 1)) };
    default:
      return { kind };
  }
}

const roleKind = oneOf<ControlRole["kind"]>({
  forward: true,
  backward: true,
  slots: true,
  action: true,
  message: true,
  link: true,
});
const direction = oneOf<Extract<ControlRole, { kind: "message" }>["from"]>({
  fromLeft: true,
  fromRight: true,
  fromSelf: true,
});

/** What a loop or a choice stands for, if it is said: its kind and its numbers in parentheses. */
export const role: ParamForm<ControlRole> = {
  isOptional: true,
  print: ({ kind, ...values }) => `${kind}(${Object.values(values).join(", ")})`,
  parse: (scanner) => {
    const kind = roleKind.parse(scanner);
    scanner.expect("(");
    const next = () => {
      const value = count.parse(scanner);
      if (!scanner.eat(",")) scanner.expect(")");
      return value;
    };
    switch (kind) {
      case "action":
        scanner.expect(")");
        return { kind };
      case "message": {
        const from = direction.parse(scanner);
        scanner.expect(")");
        return { kind, from };
      }
      case "link":
        return { kind, link: next() };
      default:
        return { kind, numStages: next(), numMicrobatches: next(), numRepeats: next() };
    }
  },
};

/** A parameter that may be missing. */
export const optional = <T>(form: ParamForm<T>): ParamForm<T> => ({ ...form, isOptional: true });

/** A last parameter that is true or missing. */
export const onlyTrue: ParamForm<true> = {
  isOptional: true,
  print: () => "true",
  parse: (scanner) => scanner.eat("true") || scanner.fail("true"),
};

/** Parameters that are printed by name, in the order given here. */
export function named<Params extends object>(
  forms: { readonly [P in keyof Params]-?: ParamForm<NonNullable<Params[P]>> },
) {
  const entries = Object.entries<ParamForm<unknown>>(forms);
  return {
    print(params: { readonly [P in keyof Params]: Params[P] | undefined }) {
      const values = new Map<string, unknown>(Object.entries(params));
      const given = entries.filter(([name, form]) => !form.isOptional || values.get(name) !== undefined);
      return given.map(([name, form]) => `${name}: ${form.print(values.get(name))}`);
    },
    parse(scanner: Scanner) {
      const values = entries.flatMap(([name, form], i) => {
        const comma = i === 0 ? [] : [","];
        if (form.isOptional && !scanner.sees(...comma, `${name}:`)) return [];
        for (const token of comma) scanner.expect(token);
        if (!scanner.eat(`${name}:`)) scanner.fail(`the parameter "${name}:"`);
        return [[name, form.parse(scanner)]];
      });
      // Every parameter has its form.
      return Object.fromEntries(values) as Params;
    },
  };
}
