/// \file
/// Reads the pickles of torch.save as plain values. Nothing is ever called: the few globals that
/// state dicts need have a fixed meaning here, and every other one is refused by its name.
///
/// Supported are protocols 1 to 5 as torch.save writes them; collections.OrderedDict and
/// argparse.Namespace (dicts; their further attributes are left out), torch.Size (a tuple),
/// torch.device, torch's element types, storages and functions that rebuild tensors and parameters.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tensor/shape.h"

namespace heddle::checkpoint {

/// Limits of a pickle. With them, any input is read in less than 160 MB of memory.
inline constexpr int64_t kMaxPickleBytes = int64_t{32} << 20;
inline constexpr size_t kMaxPickleValues = 2'000'000;
inline constexpr size_t kMaxPickleContainers = 500'000;  ///< Lists and dicts.
inline constexpr size_t kMaxPickleItems = 4'000'000;     ///< Items of all containers.
inline constexpr size_t kMaxPickleStack = 1'000'000;
inline constexpr size_t kMaxPickleTensors = 150'000;  ///< Tensors; also the most storages.
inline constexpr size_t kMaxPickleDepth = 1000;       ///< Open marks, that is open containers.

/// The number of a value in a tree. Values may be shared, and a list or dict may contain itself, so
/// that a traversal must bound its depth.
using PickleId = uint32_t;

/// A storage, whose bytes are the archive's entry data/KEY.
struct PickledStorage {
  std::string_view type;  ///< Storage class, a name of pytorch_types.h: "FloatStorage".
  std::string_view key;
  int64_t elements = 0;  ///< Number in the pickle; not compared with the entry yet.
};

/// A tensor's view of a storage. Only its syntax is checked.
struct PickledTensor {
  uint32_t storage = 0;  ///< Number of the storage.
  PickleId shape = 0;    ///< Argument for PickleTree::ShapeOf.
  PickleId stride = 0;   ///< Argument for PickleTree::ShapeOf.
  int64_t offset = 0;
  std::string_view type;  ///< Element type of an untyped storage, "float8_e4m3fn"; else empty.
};

/// The values of one pickle. Thread: reads from any thread.
class PickleTree {
 public:
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kBytes,
    kTuple,
    kList,
    kDict,
    kStorage,
    kTensor,
    kGlobal,  ///< A supported global, for example a torch.dtype.
    kOther,   ///< A value without a meaning here: an integer above 64 bits, a torch.device.
  };

  PickleTree(PickleTree&&) = default;
  PickleTree& operator=(PickleTree&&) = default;

  PickleId root() const { return root_; }
  Kind kind(PickleId id) const { return values_[id].kind; }
  /// The value of a kInt or kBool.
  int64_t Integer(PickleId id) const { return values_[id].number; }
  double Float(PickleId id) const { return std::bit_cast<double>(values_[id].number); }
  /// The content of a kText or kBytes, or the last component of a kGlobal's name.
  std::string_view Text(PickleId id) const;
  /// The number of items of a kTuple, kList or kDict.
  size_t Size(PickleId id) const;
  /// Item `i` of a kTuple or kList, or value `i` of a kDict.
  PickleId Item(PickleId id, size_t i) const;
  /// Key `i` of a kDict.
  PickleId Key(PickleId id, size_t i) const;
  const PickledTensor& Tensor(PickleId id) const;
  const PickledStorage& Storage(size_t number) const { return storages_[number]; }
  /// A tensor's shape or strides.
  Shape ShapeOf(PickleId id) const;

 private:
  friend class PickleMachine;
  /// `number` is the value of a number, or the position of the rest of the value: a text's offset
  /// in text_, a tuple's first item in tuple_items_, or an index into containers_, storages_ or
  /// tensors_.
  struct Value {
    Kind kind = Kind::kNone;
    uint8_t global = 0;
    uint32_t size = 0;  ///< Size of a text or a tuple.
    int64_t number = 0;
  };

  PickleTree() = default;

  std::unique_ptr<const std::string> text_;
  std::deque<Value> values_;
  std::deque<PickleId> tuple_items_;
  std::deque<std::vector<PickleId>> containers_;  ///< Items; of a dict: key, value, key, value …
  std::deque<PickledStorage> storages_;
  std::deque<PickledTensor> tensors_;
  PickleId root_ = 0;
};

/// Reads a whole pickle. Errors: kInvalidArgument (an unknown global, or a limit is exceeded),
/// kDataLoss (not a pickle of torch.save).
Result<PickleTree> ReadPickle(std::string text);

}  // namespace heddle::checkpoint
