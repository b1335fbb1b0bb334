/// \file
/// The pickles of torch.save as plain values. Nothing is ever called: the few globals that state
/// dicts need have a fixed meaning here, and every other one is refused by its name.
///
/// What is understood: protocols 1 to 5 as torch.save writes them; collections.OrderedDict and
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

/// With these, any input is read in less than 160 MB of memory.
inline constexpr int64_t kMaximumPickleBytes = int64_t{32} << 20;
inline constexpr size_t kMaximumPickleValues = 2'000'000;
inline constexpr size_t kMaximumPickleContainers = 500'000;  ///< Lists and dicts.
inline constexpr size_t kMaximumPickleItems = 4'000'000;     ///< Of all containers.
inline constexpr size_t kMaximumPickleStack = 1'000'000;
inline constexpr size_t kMaximumPickleTensors = 150'000;  ///< And as many storages.
inline constexpr size_t kMaximumPickleDepth = 1000;       ///< Of marks, that is of open containers.

/// A value of a tree, by number. Values may share others, and a list or dict may hold itself: who
/// walks a tree must bound the way.
using PickleId = uint32_t;

/// A storage: the bytes of entry data/KEY.
struct PickledStorage {
  std::string_view type;  ///< "FloatStorage": a name of pytorch_types.h.
  std::string_view key;
  int64_t elements = 0;  ///< As the pickle says; not yet compared with the entry.
};

/// A tensor's view of a storage, unchecked but for its form.
struct PickledTensor {
  uint32_t storage = 0;  ///< Number of the storage.
  PickleId shape = 0;    ///< For PickleTree::ShapeOf.
  PickleId stride = 0;
  int64_t offset = 0;
  std::string_view type;  ///< "float8_e4m3fn", where the storage is untyped; else empty.
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
    kGlobal,  ///< One of the globals above, for example a torch.dtype.
    kOther,   ///< Something without a meaning here: an integer above 64 bits, a torch.device.
  };

  PickleTree(PickleTree&&) = default;
  PickleTree& operator=(PickleTree&&) = default;

  PickleId root() const { return root_; }
  Kind kind(PickleId id) const { return values_[id].kind; }
  /// Of kInt and kBool.
  int64_t Integer(PickleId id) const { return values_[id].number; }
  double Float(PickleId id) const { return std::bit_cast<double>(values_[id].number); }
  /// Of kText and kBytes, and a kGlobal's last name.
  std::string_view Text(PickleId id) const;
  /// How many items a kTuple, kList or kDict has.
  size_t Size(PickleId id) const;
  /// Item `i`; of a dict, the value.
  PickleId Item(PickleId id, size_t i) const;
  /// Of a dict.
  PickleId Key(PickleId id, size_t i) const;
  const PickledTensor& Tensor(PickleId id) const;
  const PickledStorage& Storage(size_t number) const { return storages_[number]; }
  /// A tensor's shape or strides.
  Shape ShapeOf(PickleId id) const;

 private:
  friend class PickleMachine;
  /// `number` is a number, or where the rest of the value is: a text's offset in text_, a tuple's
  /// first item in tuple_items_, or the index among containers_, storages_ and tensors_.
  struct Value {
    Kind kind = Kind::kNone;
    uint8_t global = 0;
    uint32_t size = 0;  ///< Of a text or a tuple.
    int64_t number = 0;
  };

  PickleTree() = default;

  std::unique_ptr<const std::string> text_;
  std::deque<Value> values_;
  std::deque<PickleId> tuple_items_;
  std::deque<std::vector<PickleId>> containers_;  ///< A dict's are key, value, key, value …
  std::deque<PickledStorage> storages_;
  std::deque<PickledTensor> tensors_;
  PickleId root_ = 0;
};

/// Reads a whole pickle. Errors: kInvalidArgument for a global that is not known, and for more than
/// the limits above; kDataLoss for what is no pickle of torch.save.
Result<PickleTree> ReadPickle(std::string text);

}  // namespace heddle::checkpoint
