/** The names of JAX, Flax and optax, and what they are called here. */
import { readFileSync } from "node:fs";

/** All names of the modules, which `names.py` took from the originals; of `jax` itself they are the common ones. */
const {
  names: listed,
  versions,
}: {
  readonly names: Readonly<Record<string, string>>;
  readonly versions: Readonly<Record<string, string>>;
} = JSON.parse(readFileSync(new URL("./names.json", import.meta.url), "utf8"));

/** The versions of the libraries that the names were taken from. */
export { versions };

/** The names of one module of another library. */
export interface Library {
  /** The module as its documentation calls it. */
  readonly title: string;
  /** What programs write before its names. */
  readonly prefix: string;
  /** Which entry point of the package has the names. */
  readonly module: string;
  /** What programs write here before the names; empty for names of the entry point itself. */
  readonly ours: string;
  /** The names, separated by spaces. */
  readonly names: string;
  /** Names that are not those of the other library in camelCase: an export, or a member of one. */
  readonly renamed: Readonly<Record<string, string>>;
  /** Names that are deliberately missing, each with the reason. */
  readonly leftOut: Readonly<Record<string, string>>;
}

function namesOf(module: string): string {
  const names = listed[module];
  if (names === undefined) throw new Error(`names.json has no names of ${module}`);
  return names;
}

/** Names that are left out for one reason. */
const becauseOf = (reason: string, names: string): Record<string, string> =>
  Object.fromEntries(names.split(" ").map((name) => [name, reason]));

const noSmallFloats = "no engine stores elements of fewer than 8 bits, or floats of 8";

/** All of them, in the order of the page. */
export const libraries: readonly Library[] = [
  {
    title: "jax",
    prefix: "jax",
    module: "shardwise",
    ours: "",
    names: `
      Array block_until_ready checkpoint custom_gradient custom_jvp custom_vjp debug.callback
      debug.print default_device Device device_count device_get device_put devices disable_jit
      eval_shape experimental.checkify.check experimental.checkify.checkify experimental.io_callback
      flatten_util.ravel_pytree grad hessian jacfwd jacobian jacrev jit jvp linearize local_device_count
      local_devices make_array_from_process_local_data make_jaxpr make_mesh named_scope NamedSharding P
      process_count process_index pure_callback remat set_mesh ShapeDtypeStruct shard_map typeof
      value_and_grad vjp vmap
    `,
    renamed: {
      Array: "Tensor",
      block_until_ready: "Tensor.ready",
      checkpoint: "remat",
      "experimental.checkify.check": "checkify.check",
      "experimental.checkify.checkify": "checkify.checkify",
      "experimental.io_callback": "ioCallback",
      "flatten_util.ravel_pytree": "ravelPytree",
      device_get: "Tensor.data",
      make_jaxpr: "makeProgram",
      make_mesh: "Mesh.create",
      set_mesh: "withMesh",
      typeof: "Tensor.type",
    },
    leftOut: {
      default_device:
        "functions run where their arguments or their mesh are: `devicePut`, or the `mesh` of `jit`",
    },
  },
  {
    title: "jax.numpy",
    prefix: "jnp",
    module: "shardwise",
    ours: "np",
    names: namesOf("jax.numpy"),
    renamed: {
      bool_: "np.bool",
      ix_: "np.ix",
      s_: "np.s",
      ndarray: "Tensor",
    },
    leftOut: {
      ...becauseOf(
        'a data type is written as its name, such as `"float32"`; `np.isdtype` and `np.issubdtype` know the abstract ones by name',
        "cdouble character complex_ complexfloating csingle double dtype flexible float_ floating generic inexact int_ integer number object_ signedinteger single uint unsignedinteger",
      ),
      ...becauseOf("JAX cuts 64-bit integers to 32 bits unless they are switched on", "int64 uint64"),
      ...becauseOf(
        noSmallFloats,
        "float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu int1 int2 int4 uint1 uint2 uint4",
      ),
      ...becauseOf(
        "tensors are read and written by `shardwise/train` as safetensors and checkpoints, and made of typed arrays by `np.array`",
        "from_dlpack frombuffer fromfile fromiter fromstring load save savez",
      ),
      ...becauseOf(
        "a tensor has no value to print before it is computed: `await x.data()`",
        "array_repr array_str get_printoptions printoptions set_printoptions",
      ),
      ...becauseOf(
        "functions are plain functions: `np.vectorize` maps one over tensors, `lax.reduce` and `lax.associativeScan` reduce with it",
        "frompyfunc ufunc",
      ),
      ...becauseOf(
        "JavaScript has no syntax for it: `np.s` makes slices, `np.concatenate`, `np.stack` and `np.columnStack` join",
        "c_ index_exp r_",
      ),
      ...becauseOf("the shape of its result depends on values", "trim_zeros"),
      ...becauseOf("`np.einsum` finds the order of its products itself", "einsum_path"),
      ...becauseOf(
        "`ComplexWarning` belongs to Python; `Array.isArray` tells lists from other values",
        "ComplexWarning iterable",
      ),
    },
  },
  {
    title: "jax.numpy.linalg",
    prefix: "jnp.linalg",
    module: "shardwise",
    ours: "np.linalg",
    names: namesOf("jax.numpy.linalg"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.numpy.fft",
    prefix: "jnp.fft",
    module: "shardwise",
    ours: "np.fft",
    names: namesOf("jax.numpy.fft"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.lax",
    prefix: "lax",
    module: "shardwise",
    ours: "lax",
    names: namesOf("jax.lax"),
    renamed: {
      dtype: "Tensor.dtype",
      broadcast_shapes: "np.broadcastShapes",
      with_sharding_constraint: "withShardingConstraint",
    },
    leftOut: {
      ...becauseOf(
        "methods of `x.at(…)`, such as `add`, `max` and `apply`, say it without dimension numbers",
        "scatter_add scatter_apply scatter_max scatter_min scatter_mul scatter_sub index_take",
      ),
      ...becauseOf("effects are ordered without tokens", "after_all create_token"),
      ...becauseOf(
        "halves of a transfer that tokens order, for NCCL alone: `lax.ppermute` is both of them",
        "precv psend",
      ),
      ...becauseOf("`lax.topK` is exact and needs no approximation", "approx_max_k approx_min_k"),
      ...becauseOf(
        "shapes of results are known before anything runs: `evalShape`",
        "conv_general_permutations conv_general_shape_tuple conv_shape_tuple conv_transpose_shape_tuple reduce_window_shape_tuple shape_as_value",
      ),
      ...becauseOf("`random.bits` and `random.uniform` draw from keys", "rng_bit_generator rng_uniform"),
      ...becauseOf("`np.fft` has transforms of every kind", "fft"),
      ...becauseOf(noSmallFloats, "scaled_dot"),
      ...becauseOf("it belongs to JAX's compiler", "composite dce_sink platform_dependent stage"),
    },
  },
  {
    title: "jax.random",
    prefix: "jax.random",
    module: "shardwise",
    ours: "random",
    names: namesOf("jax.random"),
    renamed: {
      PRNGKey: "random.key",
    },
    leftOut: becauseOf(
      "a key is a `uint32[2]` tensor of threefry, which is read and made like any other",
      "key_data key_dtype key_impl wrap_key_data",
    ),
  },
  {
    title: "jax.tree",
    prefix: "jax.tree",
    module: "shardwise",
    ours: "tree",
    names: namesOf("jax.tree"),
    renamed: { leaves_with_path: "tree.flattenWithPath" },
    leftOut: {
      ...becauseOf("`tree.reduce` takes any function", "reduce_associative"),
      ...becauseOf("objects of classes are leaves", "static"),
    },
  },
  {
    title: "jax.nn",
    prefix: "jax.nn",
    module: "shardwise/nn",
    ours: "nn",
    names: namesOf("jax.nn"),
    renamed: {},
    leftOut: becauseOf(noSmallFloats, "get_scaled_dot_general_config scaled_dot_general scaled_matmul"),
  },
  {
    title: "jax.nn.initializers",
    prefix: "initializers",
    module: "shardwise/nn",
    ours: "nn.initializers",
    names: namesOf("jax.nn.initializers"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.scipy.special",
    prefix: "jax.scipy.special",
    module: "shardwise",
    ours: "scipy.special",
    names: namesOf("jax.scipy.special"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.scipy.stats",
    prefix: "jax.scipy.stats",
    module: "shardwise",
    ours: "scipy.stats",
    names: namesOf("jax.scipy.stats"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.scipy.linalg",
    prefix: "jax.scipy.linalg",
    module: "shardwise",
    ours: "scipy.linalg",
    names: namesOf("jax.scipy.linalg"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.scipy.signal",
    prefix: "jax.scipy.signal",
    module: "shardwise",
    ours: "scipy.signal",
    names: namesOf("jax.scipy.signal"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.scipy.integrate",
    prefix: "jax.scipy.integrate",
    module: "shardwise",
    ours: "scipy.integrate",
    names: namesOf("jax.scipy.integrate"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.scipy.interpolate",
    prefix: "jax.scipy.interpolate",
    module: "shardwise",
    ours: "scipy.interpolate",
    names: namesOf("jax.scipy.interpolate"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.scipy.ndimage",
    prefix: "jax.scipy.ndimage",
    module: "shardwise",
    ours: "scipy.ndimage",
    names: namesOf("jax.scipy.ndimage"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.scipy.fft",
    prefix: "jax.scipy.fft",
    module: "shardwise",
    ours: "scipy.fft",
    names: namesOf("jax.scipy.fft"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.scipy.cluster.vq",
    prefix: "jax.scipy.cluster.vq",
    module: "shardwise",
    ours: "scipy.cluster.vq",
    names: namesOf("jax.scipy.cluster.vq"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.scipy.sparse.linalg",
    prefix: "jax.scipy.sparse.linalg",
    module: "shardwise",
    ours: "scipy.sparse.linalg",
    names: namesOf("jax.scipy.sparse.linalg"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.scipy.spatial.transform",
    prefix: "jax.scipy.spatial.transform",
    module: "shardwise",
    ours: "scipy.spatial.transform",
    names: namesOf("jax.scipy.spatial.transform"),
    renamed: {},
    leftOut: becauseOf(
      "rotations of bodies in space are of use to few models: quaternions are four numbers that `np` multiplies",
      "Rotation Slerp",
    ),
  },
  {
    title: "jax.scipy.optimize",
    prefix: "jax.scipy.optimize",
    module: "shardwise",
    ours: "scipy.optimize",
    names: namesOf("jax.scipy.optimize"),
    renamed: {},
    leftOut: {},
  },
  {
    title: "flax.linen",
    prefix: "nn",
    module: "shardwise/nn",
    ours: "nn",
    names: namesOf("flax.linen"),
    renamed: {
      Module: "nn.module",
      RNNCellBase: "nn.rnnCell",
      apply: "nn.ModuleInstance",
      checkpoint: "nn.remat",
      compact: "nn.module",
      init: "nn.ModuleInstance",
      init_with_output: "nn.ModuleInstance",
      normalize: "nn.standardize",
      ones: "nn.initializers.ones",
      ones_init: "nn.initializers.ones",
      zeros: "nn.initializers.zeros",
      zeros_init: "nn.initializers.zeros",
    },
    leftOut: {
      ...becauseOf(
        "scales are those of earlier calls, kept in variables; `nn.float8DotGeneral` takes that of the tensor at hand",
        "Fp8DirectDotGeneralOp Fp8DotGeneral Fp8DotGeneralOp Fp8Einsum NANOOFp8DotGeneralOp",
      ),
      ...becauseOf("variables are plain objects, read-only by their types", "FrozenDict"),
      ...becauseOf(
        "modules are functions, which have no methods to wrap or to name",
        "compact_name_scope nowrap share_scope",
      ),
      ...becauseOf(
        "`namedScope` names what a function computes",
        "disable_named_call enable_named_call named_call override_named_call",
      ),
      ...becauseOf("`nn.scan` and `nn.vmap` take `null` for what is not split", "broadcast"),
      ...becauseOf("`a ?? b` says it", "merge_param"),
      ...becauseOf("rules last for one call: `nn.logicalAxisRules`", "set_logical_axis_rules"),
      ...becauseOf(
        "`metadataParams: { partitionName }` of `nn.scan` and `nn.vmap` names the dim that they add",
        "add_metadata_axis PARTITION_NAME",
      ),
    },
  },
  {
    title: "optax",
    prefix: "optax",
    module: "shardwise/optim",
    ours: "optim",
    names: namesOf("optax"),
    renamed: {
      MultiSteps: "optim.multiSteps",
      convex_kl_divergence: "optim.generalizedKlDivergence",
      constant_schedule: "optim.constant",
      cosine_decay_schedule: "optim.cosine",
      cosine_onecycle_schedule: "optim.cosineOneCycle",
      exponential_decay: "optim.exponential",
      join_schedules: "optim.join",
      linear_onecycle_schedule: "optim.linearOneCycle",
      linear_schedule: "optim.linear",
      optimistic_adam_v2: "optim.optimisticAdam",
      piecewise_constant_schedule: "optim.piecewiseConstant",
      piecewise_interpolate_schedule: "optim.piecewiseInterpolate",
      polynomial_schedule: "optim.polynomial",
      sgdr_schedule: "optim.sgdr",
      warmup_constant_schedule: "optim.warmupConstant",
      warmup_cosine_decay_schedule: "optim.warmupCosine",
      warmup_exponential_decay_schedule: "optim.warmupExponential",
    },
    leftOut: {
      ...becauseOf(
        "a helper of optax's own transformations: tensors and trees have functions for it",
        "bias_correction flatten init_empty_state safe_increment safe_int32_increment safe_norm safe_root_mean_squares tree_map_params update_infinity_moment update_moment update_moment_per_elem_norm with_extra_args_support",
      ),
      ...becauseOf("`optim.stateless` takes any function of trees", "stateless_with_tree_map"),
      ...becauseOf("it is deprecated: `optim.injectHyperparams`", "inject_stateful_hyperparams"),
      ...becauseOf(
        "linear algebra and a distribution that no optimiser of optax uses: `np.linalg`, `scipy.optimize` and `random` are for it",
        "matrix_inverse_pth_root multi_normal nnls power_iteration",
      ),
    },
  },
];
