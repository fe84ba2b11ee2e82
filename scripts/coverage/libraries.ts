/** The names of JAX, Flax and optax that programs commonly call, and what they are called here. */

/** The commonly used names of one module of another library. */
export interface Library {
  /** The module as its documentation calls it. */
  readonly title: string;
  /** What programs write before its names. */
  readonly prefix: string;
  /** Which entry point of the package has the names. */
  readonly module: string;
  /** What programs write here before the names; nothing for names of the entry point itself. */
  readonly ours: string;
  /** The names, separated by blanks. */
  readonly names: string;
  /** Names that are not those of the other library in camelCase: an export, or a member of one. */
  readonly renamed: Readonly<Record<string, string>>;
  /** Names that are left out, each with the reason. */
  readonly leftOut: Readonly<Record<string, string>>;
}

/** Names that are left out for one reason. */
const becauseOf = (reason: string, names: string): Record<string, string> =>
  Object.fromEntries(names.split(" ").map((name) => [name, reason]));

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
    names: `
      abs absolute acos acosh add all allclose amax amin angle any append apply_along_axis
      apply_over_axes arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin
      argpartition argsort argwhere around array array_equal array_equiv array_repr array_split
      array_str asarray asin asinh astype atan atan2 atanh atleast_1d atleast_2d atleast_3d
      average bartlett bfloat16 bincount bitwise_and bitwise_count bitwise_invert
      bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman block
      bool bool_ broadcast_arrays broadcast_shapes broadcast_to c_ can_cast cbrt cdouble ceil
      character choose clip column_stack complex128 complex64 complex_ complexfloating
      ComplexWarning compress concat concatenate conj conjugate convolve copy copysign corrcoef
      correlate cos cosh count_nonzero cov cross csingle cumprod cumsum cumulative_prod
      cumulative_sum deg2rad degrees delete diag diag_indices diag_indices_from diagflat diagonal
      diff digitize divide divmod dot double dsplit dstack dtype e ediff1d einsum einsum_path
      empty empty_like equal euler_gamma exp exp2 expand_dims expm1 extract eye fabs fill_diagonal
      finfo flatnonzero flexible flip fliplr flipud float16 float32 float4_e2m1fn float64
      float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn
      float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float_ float_power floating floor
      floor_divide fmax fmin fmod frexp from_dlpack frombuffer fromfile fromfunction fromiter
      frompyfunc fromstring full full_like gcd generic geomspace get_printoptions gradient greater
      greater_equal hamming hanning heaviside histogram histogram2d histogram_bin_edges
      histogramdd hsplit hstack hypot i0 identity iinfo imag index_exp indices inexact inf inner
      insert int1 int16 int2 int32 int4 int64 int8 int_ integer interp intersect1d invert isclose
      iscomplex iscomplexobj isdtype isfinite isin isinf isnan isneginf isposinf isreal isrealobj
      isscalar issubdtype iterable ix_ kaiser kron lcm ldexp left_shift less less_equal lexsort
      linspace load log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or
      logical_xor logspace mask_indices matmul matrix_transpose matvec max maximum mean median
      meshgrid mgrid min minimum mod modf moveaxis multiply nan nan_to_num nanargmax nanargmin
      nancumprod nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile
      nanstd nansum nanvar ndarray ndim negative newaxis nextafter nonzero not_equal number
      object_ ogrid ones ones_like outer packbits pad partition percentile permute_dims pi
      piecewise place poly polyadd polyder polydiv polyfit polyint polymul polysub polyval
      positive pow power printoptions prod promote_types ptp put put_along_axis quantile r_
      rad2deg radians ravel ravel_multi_index real reciprocal remainder repeat reshape resize
      result_type right_shift rint roll rollaxis roots rot90 round s_ save savez searchsorted
      select set_printoptions setdiff1d setxor1d shape sign signbit signedinteger sin sinc single
      sinh size sort sort_complex spacing split sqrt square squeeze stack std subtract sum
      swapaxes take take_along_axis tan tanh tensordot tile trace transpose trapezoid tri tril
      tril_indices tril_indices_from trim_zeros triu triu_indices triu_indices_from true_divide
      trunc ufunc uint uint1 uint16 uint2 uint32 uint4 uint64 uint8 union1d unique unique_all
      unique_counts unique_inverse unique_values unpackbits unravel_index unsignedinteger unstack
      unwrap vander var vdot vecdot vecmat vectorize vsplit vstack where zeros zeros_like
    `,
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
        "no engine stores elements of fewer than 8 bits, or floats of 8",
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
    names: `
      cholesky cond cross det diagonal eig eigh eigvals eigvalsh inv lstsq matmul matrix_norm
      matrix_power matrix_rank matrix_transpose multi_dot norm outer pinv qr slogdet solve svd svdvals
      tensordot tensorinv tensorsolve trace vecdot vector_norm
    `,
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.numpy.fft",
    prefix: "jnp.fft",
    module: "shardwise",
    ours: "np.fft",
    names: `
      fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft
      rfft2 rfftfreq rfftn
    `,
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.lax",
    prefix: "lax",
    module: "shardwise",
    ours: "lax",
    names: `
      abs acos acosh add all_gather all_to_all argmax argmin asin asinh associative_scan atan atan2
      atanh axis_index axis_size batch_matmul bessel_i0e bessel_i1e betainc
      bitcast_convert_type bitwise_and bitwise_not bitwise_or
      bitwise_xor broadcast broadcast_in_dim broadcast_shapes broadcasted_iota cbrt ceil clamp clz collapse
      complex concatenate cond conj conv conv_general_dilated conv_transpose convert_element_type cos
      cosh cumlogsumexp cummax cummin cumprod cumsum digamma div dot dot_general dynamic_index_in_dim dynamic_slice
      dynamic_slice_in_dim dynamic_update_index_in_dim dynamic_update_slice dynamic_update_slice_in_dim
      eq erf erf_inv erfc exp exp2 expand_dims expm1 floor fori_loop full full_like gather ge gt igamma
      igammac imag index_in_dim integer_pow iota is_finite le lgamma log log1p logistic lt map max min mul ne neg nextafter
      optimization_barrier pad pcast pmax pmean pmin polygamma population_count pow ppermute psum psum_scatter ragged_dot real
      reciprocal reduce reduce_and reduce_max reduce_min reduce_or reduce_precision reduce_prod
      reduce_sum reduce_window reduce_xor rem reshape rev round rsqrt scan scatter scatter_add scatter_max
      scatter_min scatter_mul select select_n shift_left shift_right_arithmetic shift_right_logical
      sign sin sinh slice slice_in_dim sort sort_key_val split sqrt square squeeze stack stop_gradient
      sub switch tan tanh tile top_k transpose unstack while_loop with_sharding_constraint zeta
    `,
    renamed: {
      broadcast_shapes: "np.broadcastShapes",
      with_sharding_constraint: "withShardingConstraint",
    },
    leftOut: {
      scatter_add: "`x.at(…).add` says it without dimension numbers",
      scatter_max: "`x.at(…).max` says it without dimension numbers",
      scatter_min: "`x.at(…).min` says it without dimension numbers",
      scatter_mul: "`x.at(…).multiply` says it without dimension numbers",
    },
  },
  {
    title: "jax.random",
    prefix: "jax.random",
    module: "shardwise",
    ours: "random",
    names: `
      ball bernoulli beta binomial bits categorical cauchy chisquare choice dirichlet exponential
      fold_in gamma geometric gumbel key laplace loggamma logistic lognormal multinomial
      multivariate_normal normal orthogonal pareto permutation poisson PRNGKey rademacher randint
      rayleigh split t truncated_normal uniform weibull_min
    `,
    renamed: {
      PRNGKey: "random.key",
    },
    leftOut: {},
  },
  {
    title: "jax.tree",
    prefix: "jax.tree",
    module: "shardwise",
    ours: "tree",
    names: `
      all flatten flatten_with_path leaves leaves_with_path map map_with_path reduce structure transpose
      unflatten
    `,
    renamed: { leaves_with_path: "tree.flattenWithPath" },
    leftOut: {},
  },
  {
    title: "jax.nn",
    prefix: "jax.nn",
    module: "shardwise/nn",
    ours: "nn",
    names: `
      celu dot_product_attention elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity
      leaky_relu log1mexp log_sigmoid log_softmax logmeanexp logsumexp mish one_hot relu relu6
      selu sigmoid silu soft_sign softmax softplus sparse_plus sparse_sigmoid squareplus
      standardize swish tanh
    `,
    renamed: {},
    leftOut: {},
  },
  {
    title: "jax.nn.initializers",
    prefix: "initializers",
    module: "shardwise/nn",
    ours: "nn.initializers",
    names: `
      constant delta_orthogonal glorot_normal glorot_uniform he_normal he_uniform kaiming_normal
      kaiming_uniform lecun_normal lecun_uniform normal ones orthogonal truncated_normal uniform
      variance_scaling xavier_normal xavier_uniform zeros
    `,
    renamed: {},
    leftOut: {},
  },
  {
    title: "flax.linen",
    prefix: "nn",
    module: "shardwise/nn",
    ours: "nn",
    names: `
      apply avg_pool BatchNorm Bidirectional celu combine_masks compact cond Conv ConvLocal
      ConvLSTMCell ConvTranspose custom_vjp Dense DenseGeneral DenyList dot_product_attention
      Dropout Einsum elu Embed fold_rngs gelu get_logical_axis_rules get_partition_spec
      get_sharding glu grad GroupNorm GRUCell hard_sigmoid hard_silu hard_swish hard_tanh init
      InstanceNorm intercept_methods jit jvp LayerNorm leaky_relu log_sigmoid log_softmax
      logical_axis_rules logical_to_mesh logical_to_mesh_axes logical_to_mesh_sharding
      LogicallyPartitioned logsumexp LSTMCell make_attention_mask make_causal_mask map_variables
      max_pool MGUCell Module MultiHeadAttention MultiHeadDotProductAttention one_hot
      OptimizedLSTMCell Partitioned pool PReLU relu relu6 remat remat_scan RMSNorm RNN scan
      SelfAttention selu Sequential sigmoid silu SimpleCell soft_sign softmax softplus
      SpectralNorm standardize swish switch tabulate tanh unbox value_and_grad Variable vjp vmap
      WeightNorm while_loop with_logical_constraint with_logical_partitioning with_partitioning
    `,
    renamed: {
      Module: "nn.module",
      compact: "nn.module",
      init: "nn.ModuleInstance",
      apply: "nn.ModuleInstance",
    },
    leftOut: {},
  },
  {
    title: "optax",
    prefix: "optax",
    module: "shardwise/optim",
    ours: "optim",
    names: `
      adabelief adadelta adafactor adagrad adam adamax adamaxw adamw adan adaptive_grad_clip
      add_decayed_weights add_noise amsgrad apply_every apply_if_finite apply_updates centralize chain
      clip clip_by_block_rms clip_by_global_norm constant_schedule cosine_decay_schedule cosine_distance
      cosine_onecycle_schedule cosine_similarity ctc_loss ema exponential_decay freeze fromage
      generalized_kl_divergence global_norm hinge_loss huber_loss identity incremental_update
      inject_hyperparams join_schedules keep_params_nonnegative kl_divergence l2_loss lamb lars lbfgs
      linear_onecycle_schedule linear_schedule lion log_cosh lookahead masked microbatch multi_transform
      nadam nadamw named_chain noisy_sgd novograd ntxent optimistic_adam_v2 optimistic_gradient_descent
      partition periodic_update piecewise_constant_schedule piecewise_interpolate_schedule
      polynomial_schedule radam rmsprop rprop safe_softmax_cross_entropy scale scale_by_adadelta
      scale_by_adam scale_by_adamax scale_by_adan scale_by_amsgrad scale_by_belief scale_by_factored_rms
      scale_by_lbfgs scale_by_learning_rate scale_by_lion scale_by_novograd scale_by_optimistic_gradient
      scale_by_param_block_norm scale_by_param_block_rms scale_by_radam scale_by_rms scale_by_rprop
      scale_by_rss scale_by_schedule scale_by_sign scale_by_stddev scale_by_trust_ratio scale_by_yogi
      set_to_zero sgd sgdr_schedule sigmoid_binary_cross_entropy sigmoid_focal_loss sign_sgd signum
      smooth_labels softmax_cross_entropy softmax_cross_entropy_with_integer_labels squared_error
      stateless trace warmup_constant_schedule warmup_cosine_decay_schedule
      warmup_exponential_decay_schedule yogi zero_nans
    `,
    renamed: {
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
    leftOut: {},
  },
];
