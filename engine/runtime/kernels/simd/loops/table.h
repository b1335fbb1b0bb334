/// \file
/// Which file of loops fills which part of the tables; one function a file and instruction set.
#pragma once

#include "engine/runtime/kernels/simd/simd.h"

#define HEDDLE_SIMD_DECLARE(set)                \
  namespace heddle::simd::set {                 \
  template <typename T>                         \
  void FillNorms(LoopTable<T>& table);          \
  template <typename T>                         \
  void FillElementwise(LoopTable<T>& table);    \
  template <typename T>                         \
  void FillLoss(LoopTable<T>& table);           \
  template <typename T>                         \
  void FillAttention(LoopTable<T>& table);      \
  template <typename M>                         \
  void FillOptimizer(OptimizerTable<M>& table); \
  }
HEDDLE_SIMD_DECLARE(baseline)
HEDDLE_SIMD_DECLARE(avx2)
HEDDLE_SIMD_DECLARE(avx512)

/// Instantiates a Fill function for every element type.
#define HEDDLE_SIMD_FILL(function)                  \
  template void function<float>(LoopTable<float>&); \
  template void function<Bf16>(LoopTable<Bf16>&);   \
  template void function<double>(LoopTable<double>&)
