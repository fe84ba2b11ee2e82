/**
 * One line for every exported function: its name, the kinds of its operands, and calls of it that are compared, each with
 * the Python expression after `~` where it does not follow from the call. `@` is the function; several names may share
 * a line. Operands are `a`, `b`, `c` in the order of their kinds; those that say so have the drawn shape.
 *
 *   x y  floats of the drawn shape        p r  positive ones       u    between −0.9 and 0.9
 *   i j  integers 1 … 5, drawn shape      k l  bools, drawn shape  z    complex numbers, drawn shape
 *   v w  vectors of 6                     m n  matrices [3, 4]     s q  square ones [4, 4]
 *   t    floats [2, 3, 4]                 e    integers 0 … 3 [6]  d    integers 0 … 3 [3]
 *   o    floats [1, 8, 8, 2]              f    floats [3, 3, 2, 4] 0    a float
 */
export const table = `
np.absolute,np.fabs,np.conj,np.conjugate,np.positive,np.copy,np.isinf,np.isposinf,np.isneginf,np.iscomplex,np.isreal,np.degrees,np.radians,np.fliplr,np.flipud,np.atleast1d,np.atleast2d,np.atleast3d,np.onesLike,np.zerosLike,np.logicalNot,np.unwrap,np.ediff1d,np.asarray,np.sortComplex,np.i0,np.nanToNum,np.emptyLike x: @(a)
np.modf x: @(a)[0]; @(a)[1]
np.arccos,np.arcsin,np.arctanh u: @(a)
np.arccosh x: @(np.add(np.abs(a), 1.5))
np.arcsinh,np.arctan x: @(a)
np.arctan2,np.trueDivide,np.remainder,np.equal,np.notEqual,np.greater,np.greaterEqual,np.lessEqual,np.logicalAnd,np.logicalOr,np.logicalXor,np.nextafter,np.arrayEqual,np.arrayEquiv,np.isclose,np.allclose xp: @(a, b)
np.divmod xp: @(a, b)[0]; @(a, b)[1]
np.pow,np.floatPower pr: @(a, b)
np.amax,np.amin x: @(a); @(a, 0); @(a, -1, {keepdims: true})
np.append xy: @(a, b); @(a, b, 0)
np.applyAlongAxis m: @((x) => np.cumsum(x), 0, a)~jnp.apply_along_axis(jnp.cumsum, 0, a)
np.applyOverAxes t: @((x, d) => np.sum(x, d, {keepdims: true}), a, [0, 2])~jnp.apply_over_axes(jnp.sum, a, (0, 2))
np.arange 0: np.arange(5); np.arange(1, 4, 0.5); np.arange(3, "float32")~jnp.arange(3, dtype="float32")
np.argpartition,np.partition v: np.sort(np.partition(a, 2).get(np.s(0, 2)))~jnp.sort(jnp.partition(a, 2)[:2])
np.argwhere k: @(a, {size: 5, fillValue: -1})
np.around,np.round x: @(a); @(a, 1)
np.arraySplit v: @(a, 4)[0]; @(a, [2, 5])[1]
np.astype x: @(a, "bfloat16"); @(a, "int32"); @(a, "bool")
np.average xp: @(a); @(a, 0, {weights: b})~jnp.average(a, 0, b); @(a, null, {weights: b})~jnp.average(a, None, b)
np.bartlett,np.blackman,np.hamming,np.hanning 0: @(7); @(1)
np.kaiser 0: @(7, 4.5)
np.bincount e: @(a, {length: 5})
np.bitwiseAnd,np.bitwiseOr,np.bitwiseXor,np.gcd,np.lcm ij: @(a, b)
np.bitwiseLeftShift,np.bitwiseRightShift,np.leftShift,np.rightShift ij: @(a, b)
np.bitwiseCount,np.bitwiseNot,np.bitwiseInvert,np.invert i: @(a)
np.block mn: @([[a, b], [b, a]])~jnp.block([[a, b], [b, a]])
np.broadcastArrays v0: @(a, b)[1]
np.broadcastTo v: @(a, [2, 6])
np.choose d: @(a, [1, 2, 3, 4])~jnp.choose(a, [jnp.array([1., 1., 1.]), jnp.array([2., 2., 2.]), jnp.array([3., 3., 3.]), jnp.array([4., 4., 4.])], mode="clip")
np.columnStack,np.dstack,np.hstack,np.vstack,np.concat xy: @([a, b])
np.compress v: @(np.array([true, false, true, true, false, true]), a, null, {size: 4})~jnp.compress(jnp.array([True, False, True, True, False, True]), a, size=4)
np.extract v: @(np.greater(a, 0), a, {size: 6, fillValue: 0})~jnp.extract(a > 0, a, size=6, fill_value=0)
np.convolve,np.correlate vw: @(a, b); @(a, np.array([1, 2, 3]), "same")~jnp.NAME(a, jnp.array([1., 2., 3.]), mode="same"); @(a, b, "full")~jnp.NAME(a, b, mode="full")
np.corrcoef,np.cov m: @(a)
np.cumulativeProd,np.cumulativeSum t: @(a, 1)~jnp.NAME(a, axis=1)
np.delete v: @(a, [1, 3])~jnp.delete(a, numpy.array([1, 3]))
np.diag s: @(a); @(a, 1)
np.diagflat v: @(a, 1)
np.diagIndices,np.trilIndices,np.triuIndices 0: @(3)[0]; @(3)[1]
np.diagIndicesFrom,np.trilIndicesFrom,np.triuIndicesFrom s: @(a)[1]
np.digitize v: @(a, np.array([-1, 0, 1])); @(a, np.array([1, 0, -1]))
np.dsplit t: @(a, 2)[1]
np.hsplit,np.vsplit s: @(a, 2)[1]
np.empty,np.ones,np.zeros 0: @([2, 3]); @([2], "int32")
np.fillDiagonal s: @(a, 5)~jnp.fill_diagonal(a, 5, inplace=False)
np.finfo 0: @("float32").eps~jnp.finfo("float32").eps; @("bfloat16").max~float(jnp.finfo("bfloat16").max)
np.iinfo 0: @("int16").max~jnp.float32(jnp.iinfo("int16").max); @("uint8").max~jnp.float32(jnp.iinfo("uint8").max)
np.fix x: @(a)~jnp.trunc(a)
np.flatnonzero v: @(np.greater(a, 0), {size: 6, fillValue: -1})~jnp.flatnonzero(a > 0, size=6, fill_value=-1)
np.nonzero x: @(np.greater(a, 0), {size: 5, fillValue: 0})[0]~jnp.nonzero(a > 0, size=5, fill_value=0)[0]
np.fromfunction 0: @((i, j) => np.add(i, j), [2, 3])~jnp.fromfunction(lambda i, j: i + j, (2, 3))
np.full 0: @([2, 3], a); @([2], 1.5); @([2], 3, "int32")
np.fullLike x: @(a, 2); @(a, 1, "int32")~jnp.full_like(a, 1, dtype="int32")
np.geomspace 0: @(1, 8, 4)
np.linspace 0: @(0, 1, 5); @(-1, a, 4); @(0, 1, 4, {endpoint: false})
np.logspace 0: @(0, 1, 5)
np.gradient v: @(a); @(a, 0.5)
np.histogram v: @(a, {bins: 4, range: [-2, 2]})[0]; @(a, {bins: 4})[1]; @(a, {bins: 4, density: true})[0]
np.histogramBinEdges v: @(a, {bins: 4})
np.histogram2d vw: @(a, b, {bins: 3})[0]
np.histogramdd m: @(np.transpose(a), {bins: 2})[0]
np.identity 0: @(3); @(2, "int32")
np.index m: @(a, 1)~a[1]; @(a, "...", 0)~a[..., 0]
np.indices 0: @([2, 3])
np.insert v: @(a, 2, 9)~jnp.insert(a, 2, 9.); @(a, [0, 3], 5)~jnp.insert(a, jnp.array([0, 3]), 5.)
np.interp v: @(a, np.array([-1, 0, 1]), np.array([2, 0, 4])); @(a, np.array([-1, 0, 1]), np.array([2, 0, 4]), {left: -5, right: 5})
np.intersect1d,np.setdiff1d,np.union1d,np.setxor1d e: @(a, np.array([1, 2, 7], "int32"), {size: 6})
np.isin e: @(a, np.array([1, 2], "int32")); @(a, np.array([1, 2], "int32"), {invert: true})
np.unique,np.uniqueValues e: @(a, {size: 5})
np.uniqueAll e: @(a, {size: 5}).values; @(a, {size: 5}).counts~jnp.unique_all(a, size=5).counts
np.unique,np.uniqueValues v: @(np.sqrt(a), {size: 6})
np.uniqueAll,np.uniqueCounts v: @(np.sqrt(a), {size: 6}).counts~jnp.NAME(jnp.sqrt(a), size=6).counts
np.uniqueCounts e: @(a, {size: 5}).counts
np.uniqueInverse e: @(a, {size: 5}).inverse~jnp.unique_inverse(a, size=5).inverse_indices
np.ix de: @(a, b)[0]; @(a, b)[1]
np.ldexp xi: @(a, b)
np.lexsort ee: @([a, b])
np.matvec sv: @(np.ones([4, 6]), b)~jnp.matvec(jnp.ones((4, 6)), b)
np.vecmat vs: @(a, np.ones([6, 4]))~jnp.vecmat(a, jnp.ones((6, 4)))
np.meshgrid vd: @([a, b])[0]~jnp.meshgrid(a, b)[0]; @([a, b], {indexing: "ij"})[1]~jnp.meshgrid(a, b, indexing="ij")[1]
np.mgrid 0: @(np.s(0, 3), np.s(1, 3)).get(1)~jnp.mgrid[0:3, 1:3][1]
np.ogrid 0: @(np.s(0, 3), np.s(1, 3))[1]~jnp.ogrid[0:3, 1:3][1]
np.maskIndices 0: @(3, (x, k) => np.triu(x, k))[0]~jnp.mask_indices(3, jnp.triu)[0]
np.nanargmax,np.nanargmin,np.nancumprod,np.nancumsum,np.nanmax,np.nanmean,np.nanmedian,np.nanmin,np.nanprod,np.nanstd,np.nansum,np.nanvar x: @(np.where(np.less(a, -1), np.nan, a)); @(a, 0)
np.nanpercentile,np.percentile x: @(a, 30); @(a, 30, 0)
np.nanquantile x: @(np.where(np.less(a, -1), np.nan, a), 0.4)
np.ndim,np.size x: @(a)~jnp.float32(jnp.NAME(a))
np.packbits h: @(a)
np.unpackbits h: @(a)
np.permuteDims t: @(a, [2, 0, 1])
np.piecewise x: @(a, [np.less(a, 0), np.greater(a, 1)], [-1, (x) => np.square(x), 3])~jnp.piecewise(a, [a < 0, a > 1], [-1, lambda x: x ** 2, 3])
np.place v: @(a, np.greater(a, 0), np.array([1, 2, 3]))~jnp.place(a, a > 0, jnp.array([1., 2., 3.]), inplace=False)
np.put v: @(a, np.array([0, 2], "int32"), np.array([7, 8]))~jnp.put(a, jnp.array([0, 2]), jnp.array([7., 8.]), inplace=False)
np.putAlongAxis m: @(a, np.array([[0], [1], [2]], "int32"), 9, 1)~jnp.put_along_axis(a, jnp.array([[0], [1], [2]]), 9, 1, inplace=False)
np.poly d: @(np.array([1, 2, 3]))~jnp.poly(jnp.array([1., 2., 3.]))
np.polyadd,np.polysub,np.polymul vd: @(a, np.array([1, 2, 3]))~jnp.NAME(a, jnp.array([1., 2., 3.]))
np.polyder,np.polyint v: @(a); @(a, 2)
np.polydiv v: @(a, np.array([1, 2]))[0]~jnp.polydiv(a, jnp.array([1., 2.]))[0]
np.polyfit vw: @(a, b, 2)
np.polyval vx: @(a, b)
np.roots v: np.sort(np.abs(@(a)))~jnp.sort(jnp.abs(jnp.roots(a, strip_zeros=False)))
np.ravelMultiIndex d: @([np.minimum(a, 2), np.minimum(a, 1)], [3, 4])~jnp.ravel_multi_index((jnp.minimum(a, 2), jnp.minimum(a, 1)), (3, 4), mode="clip")
np.unravelIndex e: @(a, [2, 3])[0]; @(a, [2, 3])[1]
np.resize m: @(a, [5, 3])
np.rollaxis t: @(a, 2)
np.select x: @([np.less(a, 0), np.greater(a, 1)], [a, np.square(a)], 7)~jnp.select([a < 0, a > 1], [a, a ** 2], 7)
np.squeeze t: @(np.expandDims(a, 1)); @(np.expandDims(a, 0), 0)
np.trapezoid v: @(a); @(a, {dx: 0.5})
np.tri 0: @(3); @(3, 4, {k: 1})~jnp.tri(3, 4, 1)
np.unstack t: @(a)[1]; @(a, 1)[0]~jnp.unstack(a, axis=1)[0]
np.vander v: @(a, {n: 3})~jnp.vander(a, 3)
np.vdot vw: @(a, b)
np.vecdot mn: @(a, b); @(a, b, 0)~jnp.vecdot(a, b, axis=0)
np.vectorize x: @((x) => np.add(x, 1))(a)
np.isscalar,np.iscomplexobj,np.isrealobj x: np.array(@(a))~jnp.array(jnp.NAME(a))
np.fft.fft,np.fft.ifft,np.fft.fft2,np.fft.ifft2,np.fft.fftn,np.fft.ifftn,np.fft.rfft,np.fft.rfft2,np.fft.rfftn,np.fft.ihfft,np.fft.irfft,np.fft.irfft2,np.fft.irfftn,np.fft.hfft t: np.abs(@(a))
np.fft.fftfreq,np.fft.rfftfreq 0: @(6); @(5, 0.5)
np.fft.fftshift,np.fft.ifftshift x: @(a)
np.linalg.choSolve s: @(np.linalg.cholesky(np.add(np.matmul(a, np.transpose(a)), np.eye(4))), a)~jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a @ a.T + jnp.eye(4)), True), a)
np.linalg.cond,np.linalg.matrixRank s: @(a)
np.linalg.cross mn: @(np.transpose(a), np.transpose(b))~jnp.linalg.cross(a.T, b.T)
np.linalg.diagonal,np.linalg.trace,np.linalg.matrixTranspose,np.linalg.svdvals,np.linalg.pinv,np.linalg.matrixNorm,np.linalg.vectorNorm m: @(a)
np.linalg.eigh s: np.abs(@(np.add(a, np.transpose(a)))[1])~jnp.abs(jnp.linalg.eigh(a + a.T)[1]); @(np.add(a, np.transpose(a)))[0]~jnp.linalg.eigh(a + a.T)[0]
np.linalg.eigvalsh s: @(np.add(a, np.transpose(a)))~jnp.linalg.eigvalsh(a + a.T)
np.linalg.eig s: np.sort(np.abs(@(a)[0]))
np.linalg.eigvals s: np.sort(np.abs(@(a)))
np.linalg.expm s: @(a)~jax.scipy.linalg.expm(a)
np.linalg.lstsq s: @(np.add(a, np.multiply(np.eye(4), 5)), np.ones([4]))[0]~jnp.linalg.lstsq(a + 5 * jnp.eye(4), jnp.ones(4))[0]
np.linalg.matmul sq: @(a, b)
np.linalg.matrixPower s: @(a, 3); @(np.add(a, np.multiply(np.eye(4), 5)), -2)~jnp.linalg.matrix_power(a + 5 * jnp.eye(4), -2)
np.linalg.multiDot sq: @([a, b, a])
np.linalg.outer vw: @(a, b)
np.linalg.slogdet s: @(a)[0]; @(a)[1]
np.linalg.solve sq: @(np.add(a, np.multiply(np.eye(4), 5)), b)~jnp.linalg.solve(a + 5 * jnp.eye(4), b)
np.linalg.solveTriangular sq: @(np.add(a, np.multiply(np.eye(4), 5)), b, {lower: true})~jax.scipy.linalg.solve_triangular(a + 5 * jnp.eye(4), b, lower=True)
np.linalg.svd m: @(a)[1]; np.abs(@(a, {fullMatrices: false})[0])
np.linalg.tensordot sq: @(a, b, 1)~jnp.linalg.tensordot(a, b, axes=1)
np.linalg.tensorinv s: @(np.reshape(np.add(a, np.multiply(np.eye(4), 5)), [2, 2, 4]))~jnp.linalg.tensorinv((a + 5 * jnp.eye(4)).reshape(2, 2, 4))
np.linalg.tensorsolve s: @(np.add(a, np.multiply(np.eye(4), 5)), np.ones([4]))~jnp.linalg.tensorsolve(a + 5 * jnp.eye(4), jnp.ones(4))
np.linalg.vecdot mn: @(a, b)
lax.abs,lax.neg,lax.sign,lax.floor,lax.ceil,lax.round,lax.exp,lax.exp2,lax.expm1,lax.sin,lax.cos,lax.tan,lax.sinh,lax.cosh,lax.tanh,lax.asinh,lax.atan,lax.logistic,lax.square,lax.isFinite,lax.besselI0e,lax.besselI1e x: @(a)
lax.finite x: @(a)~lax.is_finite(a)
lax.log,lax.sqrt,lax.cbrt,lax.reciprocal,lax.lgamma,lax.digamma,lax.log1p p: @(a)
lax.asin,lax.acos,lax.atanh u: @(a)
lax.acosh p: @(lax.add(a, 1.5))
lax.add,lax.sub,lax.mul,lax.div,lax.rem,lax.max,lax.min,lax.atan2,lax.nextafter,lax.eq,lax.ne,lax.lt,lax.le,lax.gt,lax.ge xp: @(a, b)
lax.pow,lax.igamma,lax.igammac pr: @(a, b)
lax.igammaGradA,lax.randomGammaGrad pr: @(a, b)
lax.betainc pr: @(a, b, 0.4)~lax.betainc(a, b, jnp.full_like(a, 0.4))
lax.zeta pr: @(lax.add(a, 1.5), b)
lax.polygamma p: @(2, a)~lax.polygamma(jnp.full_like(a, 2), a)
lax.conj,lax.real,lax.imag z: @(a)
lax.argmax,lax.argmin x: @(a, 0, "int32")~lax.NAME(a, 0, jnp.int32)
lax.associativeScan x: @((x, y) => lax.add(x, y), a); @((x, y) => lax.add(x, y), a, {reverse: true})
lax.batchMatmul t: @(a, np.swapaxes(a, 1, 2))
lax.bitcastConvertType x: @(a, "int32"); @(a, "uint8")
lax.mulhi ij: @(np.multiply(a, 100000), np.multiply(b, -30000))~lax.mulhi(a * 100000, b * -30000)
lax.bitwiseAnd,lax.bitwiseOr,lax.bitwiseXor,lax.shiftLeft,lax.shiftRightArithmetic,lax.shiftRightLogical ij: @(a, b)
lax.bitwiseNot,lax.clz,lax.populationCount i: @(a)
lax.broadcast v: @(a, [2, 3])
lax.broadcastLike vx: @(a, np.ones([2, 6]))~lax.broadcast_like(a, jnp.ones((2, 6)))
lax.broadcastToRank x: @(a, 4)
lax.customLinearSolve sv: @((x) => np.matmul(np.add(a, np.multiply(np.eye(4), 5)), x), np.ones([4]), (f, y) => np.linalg.solve(np.add(a, np.multiply(np.eye(4), 5)), y), {transposeSolve: (f, y) => np.linalg.solve(np.transpose(np.add(a, np.multiply(np.eye(4), 5))), y)})
lax.customRoot p: @((x) => np.subtract(np.multiply(x, x), a), np.ones([1]), (f, x) => np.sqrt(a), (g, y) => np.divide(y, g(np.onesLike(y))))
lax.empty 0: np.zerosLike(@([2, 3], "float32"))
lax.broadcastInDim v: @(a, [2, 6, 3], [1])
lax.broadcastedIota 0: @("int32", [2, 3], 1)
lax.iota 0: @("float32", 4)
lax.clamp x: @(-0.5, a, 0.5)
lax.collapse t: @(a, 0, 2)
lax.concatenate xy: @([a, b], 0)
lax.conv of: @(np.transpose(a, [0, 3, 1, 2]), np.transpose(b, [3, 2, 0, 1]), [1, 2], "SAME")
lax.convWithGeneralPadding of: @(np.transpose(a, [0, 3, 1, 2]), np.transpose(b, [3, 2, 0, 1]), [1, 1], [[1, 0], [0, 2]], [1, 1], [2, 1])
lax.convGeneralDilated of: @(a, b, [1, 1], "SAME", {dimensionNumbers: ["NHWC", "HWIO", "NHWC"]}); @(a, b, [2, 1], [[1, 1], [0, 2]], {rhsDilation: [1, 2], dimensionNumbers: ["NHWC", "HWIO", "NHWC"]})
lax.convGeneralDilatedPatches o: @(np.transpose(a, [0, 3, 1, 2]), [3, 3], [1, 1], "VALID")
lax.convTranspose of: @(a, b, [2, 2], "SAME")
lax.convertElementType x: @(a, "bfloat16"); @(a, "int32")
lax.cummin,lax.cumprod,lax.cumsum x: @(a, 0); @(a, 0, true)~lax.NAME(a, 0, reverse=True)
lax.dot sq: @(a, b)
lax.dotGeneral t: @(a, a, {lhsContract: [2], rhsContract: [2], lhsBatch: [0], rhsBatch: [0]})~lax.dot_general(a, a, (((2,), (2,)), ((0,), (0,))))
lax.dynamicIndexInDim,lax.indexInDim m: @(a, 1, 0); @(a, 1, 1, false)
lax.dynamicSliceInDim m: @(a, 1, 2, 1)
lax.dynamicUpdateIndexInDim mv: @(a, np.ones([4]), 1, 0)
lax.dynamicUpdateSliceInDim m: @(a, np.ones([1, 4]), 1, 0)
lax.sliceInDim m: @(a, 1, 4, 2, 1)
lax.slice m: @(a, [0, 1], [2, 4]); @(a, [0, 0], [3, 4], [2, 3])
lax.expandDims t: @(a, [1])
lax.squeeze t: @(lax.expandDims(a, [1]), [1])
lax.full 0: @([2, 3], 2.5); @([2], 1, "int32")
lax.fullLike x: @(a, 2)
lax.integerPow x: @(a, 3)
lax.map m: @((row) => np.sum(np.square(row)), a)
lax.optimizationBarrier xy: @([a, b])[1]
lax.pad m: @(a, 0.5, [[1, 0, 1], [0, 2, 0]])~lax.pad(a, 0.5, ((1, 0, 1), (0, 2, 0)))
lax.raggedDotGeneral sq: @(a, np.stack([a, b]), np.array([1, 3], "int32"), {lhsContract: [1], rhsContract: [1], lhsRagged: 0, rhsGroup: 0})~lax.ragged_dot_general(a, jnp.stack([a, b]), jnp.array([1, 3]), lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0])); @(a, b, np.array([1, 2], "int32"), {lhsContract: [0], rhsContract: [0], lhsRagged: 0})~lax.ragged_dot_general(a, b, jnp.array([1, 2]), lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], [])); @(a, b, np.array([1, 2], "int32"), {lhsContract: [1], rhsContract: [1], lhsBatch: [0], rhsBatch: [0], lhsRagged: 0})~lax.ragged_dot_general(a, b, jnp.array([1, 2]), lax.RaggedDotDimensionNumbers((((1,), (1,)), ((0,), (0,))), [0], []))
lax.raggedDot sq: @(a, np.stack([a, b]), np.array([1, 3], "int32"))
lax.reduce m: @(a, 0, (x, y) => lax.add(x, y), [1])~lax.reduce(a, 0., lax.add, (1,))
lax.reduceMax,lax.reduceMin,lax.reduceProd,lax.reduceSum t: @(a, [0, 2])
lax.reduceAnd,lax.reduceOr,lax.reduceXor i: @(a, [0])
lax.reducePrecision x: @(a, 5, 7)
lax.reduceWindow o: @(a, -Infinity, (x, y) => lax.max(x, y), [1, 2, 2, 1], {windowStrides: [1, 2, 2, 1]})~lax.reduce_window(a, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
lax.reshape t: @(a, [6, 4])
lax.rev t: @(a, [0, 2])
lax.select kxy: @(a, b, c)
lax.selectN kxy: @(a, b, c)
lax.sort x: @(a); @(a, 0)~lax.sort(a, dimension=0)
lax.sortKeyVal vw: @(a, b)[1]
lax.split v: @(a, [2, 4])[1]
lax.stack xy: np.stack([a, b])
lax.tile m: @(a, [2, 1])
lax.transpose t: @(a, [1, 2, 0])
lax.unstack t: np.unstack(a)[1]
lax.switchCase,lax.switch x: lax.switch(1, [(x) => lax.neg(x), (x) => lax.mul(x, x)], a)
lax.whileLoop x: @((c) => np.less(np.sum(np.abs(c)), 100), (c) => np.multiply(c, 2), np.add(np.abs(a), 1))
lax.linalg.cholesky s: @(np.add(np.matmul(a, np.transpose(a)), np.eye(4)))
lax.linalg.eigh s: np.sort(@(np.add(a, np.transpose(a)))[1])
lax.linalg.lu s: @(np.add(a, np.multiply(np.eye(4), 5)))[0]
lax.linalg.qr s: np.abs(@(a, {fullMatrices: false})[1])
lax.linalg.svd m: @(a, {fullMatrices: false})[1]
lax.linalg.triangularSolve sq: @(np.add(a, np.multiply(np.eye(4), 5)), b, {leftSide: true, lower: true})
nn.hardSwish,nn.swish,nn.identity,nn.tanh x: @(a)
nn.logmeanexp x: @(a); @(a, 0)~jax.nn.logmeanexp(a, axis=0)
random.bits,random.cauchy,random.exponential,random.laplace,random.logistic,random.normal,random.rademacher,random.uniform,random.gumbel,random.maxwell 0: @(random.key(3), [5])
random.bernoulli 0: @(random.key(3), 0.3, [7])
random.beta 0: @(random.key(3), 1.5, 2.5, [5])
random.gamma,random.loggamma,random.chisquare,random.t,random.pareto,random.rayleigh 0: @(random.key(3), 2.5, [5])~jax.random.NAME(jax.random.key(3), 2.5, shape=(5,))
random.lognormal 0: @(random.key(3), 0.5, [5])
random.poisson 0: @(random.key(3), 3.5, [6])
random.geometric 0: @(random.key(3), 0.3, [6])
random.binomial 0: @(random.key(3), 10, 0.3, [6])
random.dirichlet d: @(random.key(3), np.array([1, 2, 3]), [2])~jax.random.dirichlet(jax.random.key(3), jnp.array([1., 2., 3.]), (2,))
random.f 0: @(random.key(3), 3, 5, [5])
random.ball 0: @(random.key(3), 3, 2, [2])
random.generalizedNormal 0: @(random.key(3), 1.5, [5])
random.weibullMin 0: @(random.key(3), 1.5, 2, [5])
random.wald 0: @(random.key(3), 1.5, [5])
random.triangular 0: @(random.key(3), -1, 0, 2, [5])
random.doubleSidedMaxwell 0: @(random.key(3), 1, 2, [5])
random.categorical m: @(random.key(3), a); @(random.key(3), a, {dim: 0})
random.choice v: @(random.key(3), a, [4]); @(random.key(3), 9, [4], {replace: false})
random.multinomial d: @(random.key(3), 9, np.array([0.2, 0.3, 0.5]))~jax.random.multinomial(jax.random.key(3), 9, jnp.array([0.2, 0.3, 0.5]))
random.multivariateNormal s: @(random.key(3), np.zeros([4]), np.add(np.matmul(a, np.transpose(a)), np.eye(4)))
random.orthogonal 0: np.abs(@(random.key(3), 3))
random.permutation v: @(random.key(3), a); @(random.key(3), 7)
random.randint 0: @(random.key(3), [6], -5, 9)
random.truncatedNormal 0: @(random.key(3), -1, 2, [6])
random.key,random.clone,random.foldIn,random.split 0: random.uniform(random.foldIn(random.key(3), 8), [3]); random.uniform(random.split(random.key(3)).get(1), [3])~jax.random.uniform(jax.random.split(jax.random.key(3))[1], (3,))
nn.initializers.constant,random.initializers.constant 0: @(0.5)(random.key(3), [2, 3])~jax.nn.initializers.constant(0.5)(jax.random.key(3), (2, 3))
nn.initializers.zeros,nn.initializers.ones,random.initializers.zeros,random.initializers.ones 0: @(random.key(3), [2, 3])~jax.nn.initializers.NAME(jax.random.key(3), (2, 3))
nn.initializers.normal,nn.initializers.uniform,nn.initializers.orthogonal,nn.initializers.truncatedNormal,random.initializers.normal,random.initializers.uniform,random.initializers.orthogonal,random.initializers.truncatedNormal 0: np.abs(@(0.5)(random.key(3), [4, 3]))~jnp.abs(jax.nn.initializers.NAME(0.5)(jax.random.key(3), (4, 3)))
nn.initializers.glorotNormal,nn.initializers.glorotUniform,nn.initializers.heNormal,nn.initializers.heUniform,nn.initializers.kaimingNormal,nn.initializers.kaimingUniform,nn.initializers.lecunNormal,nn.initializers.lecunUniform,nn.initializers.xavierNormal,nn.initializers.xavierUniform,random.initializers.glorotNormal,random.initializers.glorotUniform,random.initializers.heNormal,random.initializers.heUniform,random.initializers.kaimingNormal,random.initializers.kaimingUniform,random.initializers.lecunNormal,random.initializers.lecunUniform,random.initializers.xavierNormal,random.initializers.xavierUniform 0: @()(random.key(3), [4, 3])~jax.nn.initializers.NAME()(jax.random.key(3), (4, 3))
nn.initializers.varianceScaling,random.initializers.varianceScaling 0: @(2, "fanIn", "normal")(random.key(3), [4, 3])~jax.nn.initializers.variance_scaling(2, "fan_in", "normal")(jax.random.key(3), (4, 3))
optim.adabelief,optim.adagrad,optim.adam,optim.adamax,optim.adamaxw,optim.adamw,optim.adan,optim.amsgrad,optim.fromage,optim.lamb,optim.lars,optim.lion,optim.nadam,optim.nadamw,optim.novograd,optim.radam,optim.rmsprop,optim.rprop,optim.sgd,optim.signSgd,optim.signum,optim.sm3,optim.yogi,optim.optimisticGradientDescent,optim.adafactor,optim.adadelta mn: train(@({learningRate: 0.1}), a, b)
optim.optimisticAdam mn: train(@({learningRate: 0.1}), a, b)
optim.scaleByAdadelta,optim.scaleByAdam,optim.scaleByAdamax,optim.scaleByAdan,optim.scaleByAmsgrad,optim.scaleByBelief,optim.scaleByFactoredRms,optim.scaleByLion,optim.scaleByNovograd,optim.scaleByOptimisticGradient,optim.scaleByParamBlockNorm,optim.scaleByParamBlockRms,optim.scaleByRadam,optim.scaleByRms,optim.scaleByRss,optim.scaleBySign,optim.scaleBySm3,optim.scaleByStddev,optim.scaleByTrustRatio,optim.scaleByYogi,optim.centralize,optim.identity,optim.setToZero,optim.zeroNans,optim.keepParamsNonnegative,optim.applyEvery mn: train(@(), a, b)
optim.scaleByRprop mn: train(@({learningRate: 0.1}), a, b)
optim.scale,optim.clip,optim.clipByBlockRms,optim.clipByGlobalNorm,optim.adaptiveGradClip,optim.addDecayedWeights,optim.scaleByLearningRate mn: train(@(0.3), a, b)
optim.ema mn: train(@(0.9), a, b); train(@(0.9, {debias: false}), a, b)
optim.conditionallyTransform,optim.conditionallyMask mn: train(@(optim.scale(0.3), (count) => np.equal(count, 1)), a, b)
optim.normalizeByUpdateNorm mn: train(@(0.5, 0.001), a, b)
optim.trace mn: train(@({decay: 0.9}), a, b); train(@({decay: 0.9, nesterov: true}), a, b)
optim.scaleBySchedule mn: train(@((count) => np.divide(1, np.add(count, 1))), a, b)
optim.chain mn: train(@(optim.clip(0.5), optim.scale(-0.1)), a, b)
optim.globalNorm mn: @([a, b])
optim.applyUpdates mn: @([a], [b])[0]
optim.incrementalUpdate mn: @([a], [b], 0.3)[0]
optim.periodicUpdate mn: @([a], [b], np.array(4, "int32"), 2)[0]
optim.constant 0: @(0.5)(3)
optim.linear 0: @({from: 1, to: 0.1, steps: 10})(7)~optax.linear_schedule(1., 0.1, 10)(7)
optim.cosine 0: @({from: 1, to: 0.1, steps: 10})(7)~optax.cosine_decay_schedule(1., 10, 0.1)(7)
optim.exponential 0: @({from: 1, decayRate: 0.5, steps: 4})(7)~optax.exponential_decay(1., 4, 0.5)(7)
optim.polynomial 0: @({from: 1, to: 0.1, power: 2, steps: 10})(7)~optax.polynomial_schedule(1., 0.1, 2, 10)(7)
optim.piecewiseConstant 0: @(1, {5: 0.1})(7)~optax.piecewise_constant_schedule(1., {5: 0.1})(7)
optim.piecewiseInterpolate 0: @("linear", 1, {10: 0.1})(7)~optax.piecewise_interpolate_schedule("linear", 1., {10: 0.1})(7)
optim.warmupConstant 0: @({from: 0, peak: 1, warmupSteps: 5})(3)~optax.warmup_constant_schedule(0., 1., 5)(3)
optim.warmupCosine 0: @({from: 0, peak: 1, warmupSteps: 3, steps: 10})(7)~optax.warmup_cosine_decay_schedule(0., 1., 3, 10)(7)
optim.join 0: @([optim.constant(1), optim.constant(2)], [3])(5)~optax.join_schedules([optax.constant_schedule(1.), optax.constant_schedule(2.)], [3])(5)
optim.l2Loss,optim.squaredError,optim.huberLoss,optim.logCosh,optim.cosineDistance,optim.cosineSimilarity,optim.hingeLoss xy: @(a, b)
optim.perceptronLoss xy: @(a, b)~optax.losses.NAME(a, b)
optim.sigmoidBinaryCrossEntropy,optim.sigmoidFocalLoss x: @(a, np.greater(a, 0.3).astype("float32"))~optax.NAME(a, (a > 0.3).astype("float32"))
optim.softmaxCrossEntropy,optim.safeSoftmaxCrossEntropy mn: @(a, nn.softmax(b))
optim.polyLossCrossEntropy mn: @(a, nn.softmax(b))~optax.losses.NAME(a, jax.nn.softmax(b))
optim.softmaxCrossEntropyWithIntegerLabels md: @(a, b)
optim.multiclassHingeLoss,optim.multiclassPerceptronLoss md: @(a, b)~optax.losses.NAME(a, b)
optim.klDivergence mn: @(nn.logSoftmax(a), nn.softmax(b))
optim.klDivergenceWithLogTargets mn: @(nn.logSoftmax(a), nn.logSoftmax(b))~optax.losses.kl_divergence_with_log_targets(jax.nn.log_softmax(a), jax.nn.log_softmax(b))
optim.generalizedKlDivergence mn: @(nn.logSoftmax(a), nn.softmax(b))~optax.losses.generalized_kl_divergence(jax.nn.log_softmax(a), jax.nn.softmax(b))
optim.smoothLabels m: @(nn.softmax(a), 0.1)
optim.tripletMarginLoss mn: @(a, b, np.multiply(a, 0.5))~optax.losses.triplet_margin_loss(a, b, a * 0.5)
optim.ntxent m: @(a, np.array([0, 1, 0], "int32"))
`;

/** Exported functions that the table leaves out, by reason. */
export const exemptions: Readonly<Record<string, string>> = {
  "modules and transforms of modules, which the tests of src/nn compare with values recorded from Flax":
    "nn.BatchNorm nn.Bidirectional nn.Conv nn.ConvLSTMCell nn.ConvLocal nn.ConvTranspose nn.Dense nn.DenseGeneral nn.Dropout nn.Einsum nn.Embed nn.GRUCell nn.GroupNorm nn.InstanceNorm nn.LSTMCell nn.LayerNorm nn.MGUCell nn.MoE nn.MultiHeadAttention nn.MultiHeadDotProductAttention nn.OptimizedLSTMCell nn.PReLU nn.RMSNorm nn.RNN nn.SelfAttention nn.Sequential nn.SimpleCell nn.SpectralNorm nn.WeightNorm nn.attention nn.avgPool nn.maxPool nn.minPool nn.pool nn.makeAttentionMask nn.makeCausalMask nn.combineMasks nn.cond nn.customVjp nn.foldRngs nn.grad nn.interceptMethods nn.jit nn.jvp nn.mapVariables nn.mapRngs nn.perturb nn.remat nn.rematScan nn.scan nn.switch nn.switchCase nn.valueAndGrad nn.vjp nn.vmap nn.whileLoop nn.layerNorm nn.rmsNorm",
  "adapters of modules, which test/pretrained compares with values recorded from PEFT": "nn.lora",
  "kernels in few bits, which src/nn/modules/quantize.test.ts compares with the floats they stand for":
    "nn.quantizeKernels nn.dequantizeKernels",
  "builds or inspects modules, variables and their metadata; no numbers of its own":
    "nn.AxisMetadata nn.DenyList nn.LogicallyPartitioned nn.ModuleError nn.Partitioned nn.addAxis nn.getLogicalAxisRules nn.getPartitionSpec nn.getSharding nn.getVariable nn.hasRng nn.hasVariable nn.isBoxed nn.isInitializing nn.isModule nn.isMutableCollection nn.logicalAxisRules nn.logicalToMesh nn.logicalToMeshAxes nn.logicalToMeshSharding nn.makeRng nn.mapBoxes nn.module nn.modulePath nn.param nn.putVariable nn.removeAxis nn.replaceBoxed nn.rnnCell nn.sow nn.tabulate nn.unbox nn.variable nn.withLogicalConstraint nn.withLogicalPartitioning nn.withPartitioning nn.optional nn.required nn.schema",
  "needs a mesh; the tests of src/spmd compare them with values recorded from JAX":
    "lax.pbroadcast lax.pshuffle lax.pswapaxes lax.allGather lax.allToAll lax.axisIndex lax.axisSize lax.pcast lax.pmax lax.pmean lax.pmin lax.ppermute lax.pshift lax.psum lax.psumScatter lax.pvary lax.raggedAllToAll",
  "ours alone; src/nn/functions/contextAttention.test.ts compares it with nn.attention on one device":
    "nn.contextAttention nn.contextPositions nn.unzigzag nn.zigzag",
  "ours alone; src/nn/functions/float8DotGeneral.test.ts compares it with products of rounded factors":
    "nn.float8DotGeneral",
  "has a different signature in JAX, as docs/jax.md says": "lax.gather lax.scatter",
  "returns names, shapes or types, which unit tests check":
    "np.broadcastShapes np.canCast np.isdtype np.issubdtype np.promoteTypes np.resultType np.shape lax.convDimensionNumbers lax.padtypeToPads",
  "a class that other functions return": "np.IndexUpdate np.Slice",
  "has no public counterpart of the same arguments in jax.lax; np.linalg and nn.ConvLocal are compared":
    "lax.convGeneralDilatedLocal lax.linalg.eig lax.linalg.eigenvalues lax.linalg.singularValues",
  "compared with recorded values by src/random/initializers.test.ts: its kernels need three dims or more":
    "random.initializers.deltaOrthogonal nn.initializers.deltaOrthogonal",
  "ours alone, or arguments that optax takes otherwise; src/optim/optax.test.ts compares recorded values":
    "optim.addNoise optim.allFinite optim.applyIfFinite optim.castFloats optim.computeIn optim.cosineOneCycle optim.ctcLoss optim.decayMask optim.dynamicLossScale optim.freeze optim.injectHyperparams optim.lbfgs optim.linearOneCycle optim.lookahead optim.lookaheadParams optim.maskByPath optim.masked optim.masterWeights optim.microbatch optim.momentum optim.multiSteps optim.multiTransform optim.muon optim.namedChain optim.noisySgd optim.orthogonalize optim.partition optim.polyakSgd optim.roundedMaster optim.scaleByBacktrackingLinesearch optim.scaleByLbfgs optim.scaleByMuon optim.scaleByPolyak optim.scaleByZoomLinesearch optim.sgdr optim.stateless optim.valueAndGradFromState optim.ctcLossWithForwardProbs optim.measureWithEma optim.monitor optim.perExampleGlobalNormClip optim.perExampleLayerNormClip optim.scaleByDistanceOverGradients optim.scaleGradient optim.selectiveTransform optim.skipLargeUpdates optim.skipNotFinite optim.snapshot optim.warmupExponential optim.wsd",
};
