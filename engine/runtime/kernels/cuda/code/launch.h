/// \file
/// Launchers of Heddle's CUDA kernels: they queue work in a stream and return at once. All memory is
/// the card's, contiguous, and apart from each other. Each element of a result is one sum in an
/// order that the shapes alone decide, without atomics, so that a result is the same each time.
/// "Values" are fp32 or bf16, by the Type; everything is computed in fp32 unless it says otherwise.
/// A failed launch is CUDA's last error. Thread: any, on the stream's card.
#pragma once

#include <cstdint>

struct CUstream_st;  // cudaStream_t is a pointer to it.

namespace heddle::runtime::cuda {

using Stream = CUstream_st*;

/// The type of values.
enum class Type : uint8_t { kF32, kBf16 };

/// Rows of values.
struct RowShape {
  Type type;
  int64_t rows;
  int64_t dim;  ///< At most 2^30.
};

/// y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + epsilon). weight [dim] and rstd [rows]: fp32.
void RmsNorm(const RowShape& shape,
             const void* x,
             const float* weight,
             void* y,
             float* rstd,
             float epsilon,
             Stream stream);

/// dx = rstd * (h - n * mean(h * n)), h = dy * weight, n = x * rstd.
void RmsNormInputGradient(const RowShape& shape,
                          const void* dy,
                          const void* x,
                          const float* weight,
                          const float* rstd,
                          void* dx,
                          Stream stream);

/// y = (x - mean) * rstd * weight + bias, mean = mean(x), rstd = 1 / sqrt(mean((x - mean)^2) +
/// epsilon). weight, bias [dim], mean and rstd [rows]: fp32.
void LayerNorm(const RowShape& shape,
               const void* x,
               const float* weight,
               const float* bias,
               void* y,
               float* mean,
               float* rstd,
               float epsilon,
               Stream stream);

/// dx = rstd * (h - mean(h) - n * mean(h * n)), h = dy * weight, n = (x - mean) * rstd.
void LayerNormInputGradient(const RowShape& shape,
                            const void* dy,
                            const void* x,
                            const float* weight,
                            const float* mean,
                            const float* rstd,
                            void* dx,
                            Stream stream);

/// Returns the number of rows of ColumnSum's scratch memory.
int64_t ColumnSumScratch(int64_t rows);
/// sums [dim] = sum over the rows of dy * (x - mean) * rstd. Null x: of dy; null mean: it is 0.
/// mean, rstd [rows], sums and `scratch` [ColumnSumScratch(rows), dim]: fp32. The sum of dy has the
/// bits of the processor's loop.
void ColumnSum(const RowShape& shape,
               const void* dy,
               const void* x,
               const float* mean,
               const float* rstd,
               float* scratch,
               float* sums,
               Stream stream);

/// Heads of causal attention: queries and what has their shape [batch, length, heads * head_dim], keys
/// and values [batch, length, kv_heads * head_dim]; query head h reads key/value head (before + h) /
/// group.
struct HeadShape {
  Type type;
  int64_t batch;
  int64_t length;
  int64_t heads;
  int64_t kv_heads;
  int64_t group;
  int64_t before;
  int64_t head_dim;  ///< At most kMostHeadDim.
};
constexpr int64_t kMostHeadDim = 128;
/// o = softmax(q k^T / sqrt(head_dim)) v, and lse [batch, heads, length], fp32: the logarithm of the
/// softmax's sum of exponentials.
void Attention(const HeadShape& shape,
               const void* q,
               const void* k,
               const void* v,
               void* o,
               float* lse,
               Stream stream);
/// dq, dk and dv of it; `delta`: scratch memory of lse's shape.
void AttentionGradient(const HeadShape& shape,
                       const void* dout,
                       const void* q,
                       const void* k,
                       const void* v,
                       const void* o,
                       const float* lse,
                       float* delta,
                       void* dq,
                       void* dk,
                       void* dv,
                       Stream stream);

/// What is rotated: x [rows, heads * 2 * half]; row r is at position r % length.
struct RopeShape {
  Type type;
  int64_t rows;
  int64_t length;
  int64_t heads;
  int64_t half;
};
/// y: in each head (low, high) -> (low * c - high * s, high * c + low * s), with c and s from the
/// tables [length, half]; `inverse`: with -s.
void Rope(const RopeShape& shape,
          const void* x,
          const float* cosines,
          const float* sines,
          void* y,
          bool inverse,
          Stream stream);

/// y = gate * sigmoid(gate) * up, of `count` values.
void Swiglu(Type type, int64_t count, const void* gate, const void* up, void* y, Stream stream);
/// dgate and dup of it.
void SwigluGradient(Type type,
                    int64_t count,
                    const void* dy,
                    const void* gate,
                    const void* up,
                    void* dgate,
                    void* dup,
                    Stream stream);

/// y = x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3), of `count` values.
void Gelu(Type type, int64_t count, const void* x, void* y, Stream stream);
/// dx of it.
void GeluGradient(Type type, int64_t count, const void* dy, const void* x, void* dx, Stream stream);

/// Which rows belong to the same token: of `rows` tokens, the ascending values and the row that each
/// comes from, ascending among equal tokens.
struct SortedTokens {
  const int32_t* tokens;
  const int64_t* rows;
};
/// dweight [vocabulary, dim], fp32: in row v, the sum of those rows of dy whose token is first + v,
/// one after another, or 0. It has the bits of the processor's loop. `scratch`: vocabulary + 1.
void EmbeddingWeightGradient(const RowShape& shape,
                             const void* dy,
                             const SortedTokens& sorted,
                             int64_t first,
                             int64_t vocabulary,
                             int64_t* scratch,
                             float* dweight,
                             Stream stream);

/// lse [rows] = log(sum(exp(logits))) and losses [rows] = lse - the target's logit, in fp32; total =
/// scale * the sum of the losses, in fp64. Each target is in [0, dim).
void CrossEntropy(const RowShape& shape,
                  const void* logits,
                  const int32_t* targets,
                  float* lse,
                  float* losses,
                  double* total,
                  double scale,
                  Stream stream);
/// dlogits = scale * (exp(logits - lse) - 1 at the target); column 0 is the token `first`, and a
/// target beyond the columns is in no column.
void CrossEntropyGradient(const RowShape& shape,
                          const void* logits,
                          const int32_t* targets,
                          const float* lse,
                          void* dlogits,
                          int64_t first,
                          float scale,
                          Stream stream);

/// Which elements are dropped: element e of sample s where word e % 4 of Philox(key, s, e / 4) is
/// below `threshold`. Rows of `length` make a sample; `first` is the first element of its first row,
/// and `stride` lies between those of two rows.
struct DropoutMask {
  uint64_t key;
  uint64_t threshold;
  int64_t first_sample;
  int64_t length;
  int64_t first;
  int64_t stride;
};
/// y = x * scale where it is kept, else 0.
void Dropout(const RowShape& shape,
             const DropoutMask& mask,
             const void* x,
             void* y,
             float scale,
             Stream stream);

/// The sum of squares of each 4096 elements, in fp64. `T`: float or double.
template <typename T>
void SumSquares(const T* values, int64_t count, double* sums, Stream stream);

/// The factors of engine/runtime/kernels/simd/simd.h; rest = 1 - beta.
struct AdamWNumbers {
  float clip, decay, beta1, rest1, beta2, rest2, rate, root, epsilon;
};
/// One update of `count` elements, whose memory may begin at any element; `copy`, of values, gets the
/// new masters too, null: there is none.
void AdamW(float* master,
           float* exp_avg,
           float* exp_avg_sq,
           const float* gradient,
           Type copy_type,
           void* copy,
           int64_t count,
           const AdamWNumbers& numbers,
           Stream stream);

}  // namespace heddle::runtime::cuda
