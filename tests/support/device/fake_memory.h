/// \file
/// The memory of a fake device: nobody reads or writes it but while it is open, what is new or was
/// freed is full of NaN, and what was freed last is given out first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/mutex.h"
#include "engine/graph/graph.h"

namespace heddle::runtime::testing {

class FakeExport;

/// Bytes of which every floating-point number is a NaN, and every index is out of range.
void Poison(std::span<std::byte> bytes);
bool IsPoisoned(std::span<const std::byte> bytes);

/// Thread: any; Open and Close from one.
class FakeMemory : public std::enable_shared_from_this<FakeMemory> {
 public:
  explicit FakeMemory(size_t bytes);
  ~FakeMemory();
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;

  /// A contiguous tensor; the memory lives as long as it. Throws std::bad_alloc where none is left.
  at::Tensor Empty(const graph::TensorType& type);
  /// Adds memory that is opened and closed with this.
  void Add(std::weak_ptr<FakeExport> exported) HEDDLE_EXCLUDES(mutex_);
  /// Lets this process read and write it, poisoned where it is new or was freed.
  void Open();
  void Close();
  int64_t in_use() const;
  int64_t peak() const;
  void ForgetPeak();

 private:
  std::span<std::byte> Take(size_t bytes) HEDDLE_EXCLUDES(mutex_);
  void Give(std::span<std::byte> memory) HEDDLE_EXCLUDES(mutex_);

  std::span<std::byte> all_;
  mutable Mutex mutex_;
  size_t used_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Bytes ever given out.
  int64_t in_use_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t peak_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::map<size_t, std::vector<std::byte*>> free_ HEDDLE_GUARDED_BY(mutex_);  ///< By size.
  std::vector<std::span<std::byte>> to_poison_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<FakeExport>> exports_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::runtime::testing
