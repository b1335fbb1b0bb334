/// \file
/// What a process settles once before it computes: which BLAS libtorch's fp32 and fp64 matrix
/// products run in, how many threads, how memory is kept. The BLAS decides a worker's speed and
/// whether it keeps to its cores: the pthread build of OpenBLAS ignores libtorch's threads, the
/// reference BLAS is 20 times slower.
#pragma once

#include <string>
#include <string_view>

namespace heddle::runtime {

enum class BlasKind {
  kOpenBlasOpenMp,   ///< Right: follows libtorch's number of threads.
  kMkl,              ///< Right: inside PyPI's libtorch.
  kOpenBlasPthread,  ///< Wrong: has its own threads.
  kReference,        ///< Wrong: slow.
  kUnknown,
};

struct Blas {
  BlasKind kind = BlasKind::kUnknown;
  std::string path;  ///< Of the library, empty when it is inside libtorch.
};

/// "openblas-openmp", "mkl", "openblas-pthread", "reference", "unknown".
std::string_view BlasName(BlasKind kind);

/// What the text of /proc/self/maps says was loaded; `has_mkl`: libtorch was built with MKL.
Blas FindBlas(std::string_view maps, bool has_mkl);

/// The BLAS of this process.
Blas LoadedBlas();

/// The line that says what is wrong and what to install; empty when the BLAS is right.
std::string BlasWarning(const Blas& blas);

/// Writes BlasWarning to the log, if there is one.
void WarnAboutBlas();

/// Sets the number of threads (>= 1) that kernels and matrix products of the calling thread use,
/// the pthread OpenBLAS included. Call in the thread that runs the kernels.
void SetThreads(int threads);

/// Makes malloc keep freed activations instead of returning them to the system: without it every
/// step faults in the pages of every large tensor again, because glibc maps each large block anew.
/// Call once, before the first tensor. No effect without glibc.
void KeepFreedMemory();

}  // namespace heddle::runtime
