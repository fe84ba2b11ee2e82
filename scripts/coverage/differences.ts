/** The section of `docs/jax.md` on functions with the same name that behave differently. */
export const DIFFERENCES = `## Differences

What has the same name gives the same values, up to the last digits ([Numbers](limits.md#numbers)) and to what [Limits](limits.md#data-types) says. \`npm run test:jax\` compares every function of \`np\`, \`lax\`, \`nn\`, \`random\`, \`optim\` and \`scipy\`, on worker threads and on the reference engine, with JAX and optax on random arguments. These are different on purpose:

| here | in JAX or optax |
| --- | --- |
| \`lax.gather(x, indices, { dim, batchDims })\` takes slices along one dim, and clamps indices | \`lax.gather\` takes \`GatherDimensionNumbers\`, slice sizes and a mode; \`x.at(i, j)\`, \`np.take\` and \`np.takeAlongAxis\` cover the rest |
| \`lax.scatter(x, indices, updates, { dim, batchDims, combine })\` adds or writes slices along one dim, and drops those out of range | \`lax.scatter\`, \`scatter_add\` and others take \`ScatterDimensionNumbers\`; \`x.at(i).add(…)\`, \`.set\`, \`.multiply\`, \`.min\`, \`.max\` cover the rest |
| \`optim.applyIfFinite(finite, next, before)\` selects one of two trees, for a step that scales its loss itself | \`optax.apply_if_finite(inner, max_consecutive_errors)\` wraps an optimiser and counts its failures |
| \`random.multivariateNormal\` with \`method: "eigh"\` or \`"svd"\` multiplies by eigenvectors with signs of our own: the distribution is the same, a draw may differ. \`"cholesky"\`, the default, gives the same draws | the signs are LAPACK's |
| \`scipy.special\` computes where JAX overflows, loses digits or returns NaN: \`besselJn\` of small and zero arguments, \`expn\` at 0, \`expi\` and \`spence\` of infinity, the derivative of \`spence\` from 1, \`hyp1f1\` of negative and \`hyp2f1\` of x below −1, both of parameters that end their series | JAX's float32 recurrences and series are used as they are |
| \`lax.igamma(0, x)\` is 1, as in SciPy, so \`scipy.stats.chi2.cdf\` and \`gamma.cdf\` with 0 degrees of freedom are, too; \`scipy.special.besselJn\` has SciPy's derivatives | NaN for x below 1; wrong derivatives or NaN |
| \`scipy.stats\` rejects complex numbers; the density of \`chi2\` at 0 with 2 degrees of freedom is 1/2; \`scipy.special.owensT\` of 16-bit floats has their type | formulas for real numbers are used for complex ones, too; NaN; \`float32\` |
| \`scipy.linalg.eighTridiagonal\`, \`schur\` and \`solveSylvester\` have no \`tol\`, \`key\` and \`method\` for how they compute; eigenvalues of \`schur\` are in no order. \`solveSylvester\` has derivatives | LAPACK's order; derivatives by the method \`"eigen"\` of symmetric matrices alone |
| \`scipy.optimize.minimize(fun, x0, { method: "BFGS", … })\` has its options beside the method, and searches on where the ends of a bracket lie the other way round: it finds the minimum of Rosenbrock's function from [−1.2, 1] | options are a dictionary; the line search gives up there (status 3) |
| moments of integer parameters are floats | optax keeps them as integers: means of squares below 1 become 0, and updates are divided by \`eps\` |
| \`scipy.special\` and the distributions of \`scipy.stats\` compute bfloat16 and float16 in float32 and round once | each step of a formula is rounded: \`beta\` of bfloat16 is up to 10 units off |
| \`scipy.linalg.fiedlerCompanion\` of a leading 0 divides by it: NaN and infinity | the same, but 0 where booleans are compiled |
| \`scipy.linalg\` writes \`trans\` as \`"N"\`, \`"T"\` or \`"C"\` and has no pivoting in \`qr\` | \`trans\` is 0, 1 or 2, in \`solve_triangular\` also a letter |
| \`lax.broadcastInDim(x, [2, 2], [1, 0])\` transposes, as it does where the shape changes | returns x where the shape stays |
| numbers are \`float32\`, also integers; see [Limits](limits.md#data-types) on weak types | Python integers are \`int32\` |

### Computed here, refused by JAX

\`npm run test:jax -- --wider\` lists what JAX rejects and shardwise computes. Each group has one meaning:

| accepted | what it is |
| --- | --- |
| \`lax.linalg\`, \`np.linalg\` and \`np.fft\` of bfloat16 and float16 | the result in float32, for decompositions rounded once to the type of the operand |
| derivatives of singular values from \`np.linalg.svd\` with full matrices, and of eigenvalues from \`np.linalg.eig\` | those of the thin decomposition and of \`np.linalg.eigvals\`; of eigenvectors the doc comment says what they assume |
| the derivatives of \`lax.zeta\` | those of its sum, by both arguments |
| the derivative of \`lax.nextafter\` | 1 by the first operand, 0 by the second |
| \`np.vander\` of booleans, \`np.polyfit\` of narrow integers | the numbers as int32 and float32, as in other functions of \`np\` |
| \`vmap\` of \`lax.raggedDot\` over any dim | the same product for each element of the batch |

### Random numbers

Keys, bits, integers, permutations and uniform values have JAX's bits on every engine. So have \`normal\`, \`truncatedNormal\` and \`exponential\` of float32, bfloat16 and float16: they follow XLA's polynomials step by step, including the products that LLVM fuses with sums, as JAX 0.10 computes them on CPUs with fused multiply-add (all of ARM, x86 since 2013). A test compares 10,000 draws of each for several seeds; none differs. JAX itself gives other last digits on GPUs. The other distributions start from the same bits and differ in the last digits as their functions do.

### Replication in shard maps

A shard map with the replication check (JAX's \`check_vma\`) accepts four kinds of programs that JAX rejects until a value is marked with \`lax.pcast(x, axis, to="varying")\`. Each is harmless, because the mark is the identity, tracing can only put it in one place, and it puts it there:

| accepted | why it is safe |
| --- | --- |
| the carry of a loop starts to vary along an axis | the loop is traced again with the initial value marked, until nothing changes; the result varies |
| the carry stops to vary, as by a sum in the body | what the body returns is marked; the result counts as varying, and to return it as replicated is an error |
| branches of \`lax.cond\` differ in how they vary | the result varies along the axes of all branches and of the predicate |
| the result of \`lax.allGather\` is returned as replicated | every device joins the same blocks in the same order |

A mark transposes to a sum over the axis, so that gradients are those of the marked program; a test compares both. Results whose replication cannot be inferred are an error, as in JAX, and so are a \`preferredElementType\` of integers narrower than the operands and \`np.kron\` of booleans. \`lax.psum\` over an axis along which the value is the same multiplies it by the size of the axis, in JAX too.`;
