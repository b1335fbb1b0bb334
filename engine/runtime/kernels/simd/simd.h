/// \file
/// The CPU's own loops: fused element-wise passes, norms, softmax loss, attention and the
/// optimizer, on plain arrays, single-threaded (a kernel cuts the work over threads). The same
/// source is compiled for each instruction set; Loops<T>() is the table for this processor.
///
/// Shapes: arrays are row-major and contiguous; `rows` is the product of the leading dimensions.
/// Bits:   a function of the values and of the instruction set; never of how the rows were cut over
/// threads. Those of the optimizer are the same for every set.
#pragma once

#include <cstdint>
#include <string_view>

namespace heddle::simd {

/// bfloat16: the upper half of an fp32.
struct Bf16 {
  uint16_t bits;
};

/// The wide type of T: double for double, otherwise float.
template <typename T>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};

/// One (sample, key/value head) of attention: causal, `group` query heads read one key/value head.
/// q, o, dq, dout point at the first query head of the group, k, v, dk, dv at the key/value head,
/// all at position 0 of the sample; a position is `q_stride` (`kv_stride`) elements after the one
/// before. lse is [group, length].
template <typename T>
struct AttentionHead {
  using W = typename WideOf<T>::Type;
  int64_t length = 0;     ///< T
  int64_t head_dim = 0;   ///< d
  int64_t group = 0;      ///< H / G
  int64_t q_stride = 0;   ///< H * d
  int64_t kv_stride = 0;  ///< G * d
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  T* o = nullptr;
  W* lse = nullptr;
  const T* dout = nullptr;
  T* dq = nullptr;
  T* dk = nullptr;
  T* dv = nullptr;
  W* scratch = nullptr;  ///< AttentionScratch(length, head_dim) elements, aligned to 64 bytes.
};

/// Elements of scratch that one attention head needs, forward or backward.
int64_t AttentionScratch(int64_t length, int64_t head_dim);

template <typename T>
struct LoopTable {
  using W = typename WideOf<T>::Type;

  void (*rms_norm)(
      const T* x, const W* weight, T* y, W* rstd, int64_t rows, int64_t dim, double epsilon);
  void (*rms_norm_input_gradient)(
      const T* dy, const T* x, const W* weight, const W* rstd, T* dx, int64_t rows, int64_t dim);
  void (*layer_norm)(const T* x,
                     const W* weight,
                     const W* bias,
                     T* y,
                     W* mean,
                     W* rstd,
                     int64_t rows,
                     int64_t dim,
                     double epsilon);
  void (*layer_norm_input_gradient)(const T* dy,
                                    const T* x,
                                    const W* weight,
                                    const W* mean,
                                    const W* rstd,
                                    T* dx,
                                    int64_t rows,
                                    int64_t dim);
  /// out[j] = sum over rows of dy[r][j] * (x[r][j] - mean[r]) * rstd[r], for begin <= j < end.
  /// Without mean it is 0; without x it is the sum of dy.
  void (*column_sum)(const T* dy,
                     const T* x,
                     const W* mean,
                     const W* rstd,
                     W* out,
                     int64_t rows,
                     int64_t dim,
                     int64_t begin,
                     int64_t end);
  /// dweight[token - first_row][j] += dy[r][j] row by row, for begin <= j < end; tokens of no row
  /// in [first_row, first_row + vocabulary) add nothing.
  void (*embedding_gradient)(const T* dy,
                             const int32_t* tokens,
                             W* dweight,
                             int64_t rows,
                             int64_t dim,
                             int64_t first_row,
                             int64_t vocabulary,
                             int64_t begin,
                             int64_t end);
  /// Rows [begin, end) of [rows, heads * head_dim]; row r has position r % length; cosine and sine
  /// are [length, head_dim / 2]; `inverse` rotates back.
  void (*rope)(const T* x,
               const W* cosine,
               const W* sine,
               T* y,
               int64_t begin,
               int64_t end,
               int64_t length,
               int64_t heads,
               int64_t head_dim,
               bool inverse);
  void (*swiglu)(const T* gate, const T* up, T* y, int64_t count);
  void (*swiglu_gradient)(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count);
  void (*gelu)(const T* x, T* y, int64_t count);
  void (*gelu_gradient)(const T* dy, const T* x, T* dx, int64_t count);
  void (*add)(const T* a, const T* b, T* y, int64_t count);
  /// y[r][j] += bias[j].
  void (*add_bias)(T* y, const W* bias, int64_t rows, int64_t dim);
  /// lse [rows] and each row's loss, lse - logits[target].
  void (*cross_entropy)(
      const T* logits, const int32_t* targets, W* lse, W* losses, int64_t rows, int64_t vocabulary);
  /// Logits [first_row, first_row + vocabulary); a target that is none of them is another share's.
  void (*cross_entropy_gradient)(const T* logits,
                                 const int32_t* targets,
                                 const W* lse,
                                 T* dlogits,
                                 int64_t rows,
                                 int64_t vocabulary,
                                 int64_t first_row,
                                 double scale);
  void (*attention)(const AttentionHead<T>& head);
  void (*attention_gradient)(const AttentionHead<T>& head);
};

/// The table of this processor. T: float, Bf16, double.
template <typename T>
const LoopTable<T>& Loops();

/// The factors of one AdamW step, ready for the loop: master *= decay; m = beta1 m + (1 - beta1) g;
/// v = beta2 v + (1 - beta2) g^2; master -= rate * m / (sqrt(v) * root + epsilon), with g = clip *
/// gradient.
struct AdamWFactors {
  double clip, decay, beta1, beta2, rate, root, epsilon;
};

/// Optimizer passes for masters of type M (float, double).
template <typename M>
struct OptimizerTable {
  /// `bf16` and `same`: where the new master is stored too; each may be null.
  void (*adamw)(M* master,
                M* exp_avg,
                M* exp_avg_sq,
                const M* gradient,
                Bf16* bf16,
                M* same,
                int64_t count,
                const AdamWFactors& factors);
  double (*sum_of_squares)(const M* values, int64_t count);
  void (*fold)(M* left, const M* right, int64_t count);
};
template <typename M>
const OptimizerTable<M>& Optimizers();

/// "avx512", "avx2" or "baseline": the widest of the compiled sets that this processor has, or the
/// one that the environment's HEDDLE_SIMD names, if the processor has it.
std::string_view ActiveSet();

/// Whether oneDNN multiplies bf16 matrices on this processor (AVX-512 BW, VL, DQ).
bool HasFastBf16Products();

}  // namespace heddle::simd
