/// \file
/// The settings of a process before it computes: the number of threads and the reuse of memory, and
/// a check of the BLAS in which libtorch computes fp32 and fp64 matrix products. The BLAS decides a
/// worker's speed and whether the worker keeps to its cores: the pthread build of OpenBLAS ignores
/// libtorch's number of threads, and the reference BLAS is 20 times slower.
#pragma once

#include <string>
#include <string_view>

namespace heddle::runtime {

/// The kinds of BLAS that are told apart.
enum class BlasKind {
  kOpenBlasOpenMp,   ///< Suitable: it follows libtorch's number of threads.
  kMkl,              ///< Suitable: it is part of PyPI's libtorch.
  kOpenBlasPthread,  ///< Unsuitable: it has its own threads.
  kReference,        ///< Unsuitable: it is slow.
  kUnknown,
};

/// A BLAS and its library.
struct Blas {
  BlasKind kind = BlasKind::kUnknown;
  std::string path;  ///< The path of the library; empty if it is part of libtorch.
};

/// Returns the name of a kind: "openblas-openmp", "mkl", "openblas-pthread", "reference" or
/// "unknown".
std::string_view BlasName(BlasKind kind);

/// Finds the BLAS in `maps`, the text of /proc/self/maps. `has_mkl`: libtorch was built with MKL.
Blas FindBlas(std::string_view maps, bool has_mkl);

/// Returns the BLAS that this process has loaded.
Blas LoadedBlas();

/// Returns a line with the fault of an unsuitable BLAS and what to install; empty if the BLAS is
/// suitable.
std::string BlasWarning(const Blas& blas);

/// Logs the BlasWarning of LoadedBlas, if there is one.
void WarnAboutBlas();

/// Sets the number of threads (>= 1) that kernels and matrix products of the calling thread use, in
/// the pthread build of OpenBLAS, too. Thread: the one that runs the kernels.
void SetThreads(int threads);

/// Makes malloc keep freed memory instead of returning it to the system. Otherwise each step has
/// page faults for all of its large tensors, because glibc maps each large block again. All threads
/// share what is kept. Called once, before other threads begin. No effect without glibc.
void KeepFreedMemory();

}  // namespace heddle::runtime
