/* A BLAS as small as one can be. */
#define PRODUCT(name, type)                                                                                    \
  void name(int order, int transA, int transB, int m, int n, int k, type alpha, const type *a, int lda,        \
            const type *b, int ldb, type beta, type *c, int ldc) {                                             \
    for (int i = 0; i < m; i++)                                                                                \
      for (int j = 0; j < n; j++) {                                                                            \
        type sum = 0;                                                                                          \
        for (int l = 0; l < k; l++)                                                                            \
          sum += (transA == 111 ? a[i * lda + l] : a[l * lda + i]) * (transB == 111 ? b[l * ldb + j] : b[j * ldb + l]); \
        c[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * c[i * ldc + j]);                                \
      }                                                                                                        \
  }
PRODUCT(cblas_sgemm, float)
PRODUCT(cblas_dgemm, double)
