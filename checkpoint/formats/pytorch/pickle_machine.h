/// \file
/// The implementation of ReadPickle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "checkpoint/formats/pytorch/pickle.h"
#include "checkpoint/formats/pytorch/pickle_globals.h"

namespace heddle::checkpoint {

/// The stack machine of Python's pickletools, which cannot call functions. An opcode belongs to one
/// of five groups; each group's function returns nullopt for opcodes of other groups.
class PickleMachine {
 public:
  explicit PickleMachine(std::string text) {
    tree_.text_ = std::make_unique<const std::string>(std::move(text));
    text_ = *tree_.text_;
  }

  Result<PickleTree> Run();

 private:
  using Kind = PickleTree::Kind;
  using Value = PickleTree::Value;
  using Handled = std::optional<Status>;

  Status Step();

  // Input.

  Result<std::string_view> Take(uint64_t bytes) {
    if (bytes > text_.size() - position_) {
      return DataLossError("truncated: {} bytes wanted, {} left", bytes, text_.size() - position_);
    }
    const auto taken = text_.substr(position_, bytes);
    position_ += bytes;
    return taken;
  }

  template <typename T>
  Result<T> Number() {
    HEDDLE_ASSIGN_OR_RETURN(const auto raw, Take(sizeof(T)));
    T number{};
    std::memcpy(&number, raw.data(), sizeof(T));
    return number;
  }

  /// Reads a line; returns it without its newline.
  Result<std::string_view> Line() {
    const size_t end = text_.find('\n', position_);
    if (end == std::string_view::npos) {
      return DataLossError("truncated within a line");
    }
    const auto line = text_.substr(position_, end - position_);
    position_ = end + 1;
    return line;
  }

  // Stack and values.

  Status Push(PickleId id) {
    if (stack_.size() >= kMaxPickleStack) {
      return TooMany("values on its stack", kMaxPickleStack);
    }
    stack_.push_back(id);
    return Status::Ok();
  }

  Status PushNew(const Value& value) {
    HEDDLE_ASSIGN_OR_RETURN(const PickleId id, New(value));
    return Push(id);
  }

  Result<PickleId> New(const Value& value) {
    if (tree_.values_.size() >= kMaxPickleValues) {
      return TooMany("values", kMaxPickleValues);
    }
    tree_.values_.push_back(value);
    return static_cast<PickleId>(tree_.values_.size() - 1);
  }

  static Status TooMany(std::string_view what, size_t limit) {
    return InvalidArgumentError("more than {} {} are not read", limit, what);
  }

  /// The number of values above the last mark.
  size_t Above() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }

  Result<PickleId> Pop() {
    if (Above() == 0) {
      return DataLossError("a value is missing");
    }
    const PickleId id = stack_.back();
    stack_.pop_back();
    return id;
  }

  Result<PickleId> PopKind(Kind kind, std::string_view what) {
    HEDDLE_ASSIGN_OR_RETURN(const PickleId id, Pop());
    if (tree_.kind(id) != kind) {
      return DataLossError("{} is something else", what);
    }
    return id;
  }

  /// Pops the values above the last mark, and the mark.
  Result<std::vector<PickleId>> PopToMark() {
    if (marks_.empty()) {
      return DataLossError("a mark is missing");
    }
    const auto first = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<PickleId> ids(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return ids;
  }

  Status CountItems(size_t count) {
    items_ += count;
    return items_ > kMaxPickleItems ? TooMany("items", kMaxPickleItems) : Status::Ok();
  }

  Status PushText(Kind kind, std::string_view text) {
    return PushNew({.kind = kind,
                    .size = static_cast<uint32_t>(text.size()),
                    .number = text.data() - text_.data()});
  }

  Status PushTuple(std::span<const PickleId> ids) {
    HEDDLE_RETURN_IF_ERROR(CountItems(ids.size()));
    const auto begin = static_cast<int64_t>(tree_.tuple_items_.size());
    tree_.tuple_items_.insert(tree_.tuple_items_.end(), ids.begin(), ids.end());
    return PushNew(
        {.kind = Kind::kTuple, .size = static_cast<uint32_t>(ids.size()), .number = begin});
  }

  Status PushContainer(Kind kind, std::vector<PickleId> ids) {
    HEDDLE_RETURN_IF_ERROR(CountItems(ids.size()));
    if (tree_.containers_.size() >= kMaxPickleContainers) {
      return TooMany("lists and dicts", kMaxPickleContainers);
    }
    if (kind == Kind::kDict && ids.size() % 2 != 0) {
      return DataLossError("a key without a value");
    }
    tree_.containers_.push_back(std::move(ids));
    return PushNew({.kind = kind, .number = static_cast<int64_t>(tree_.containers_.size()) - 1});
  }

  /// Appends to the list or dict on the top of the stack.
  Status Extend(Kind kind, std::span<const PickleId> ids) {
    HEDDLE_RETURN_IF_ERROR(CountItems(ids.size()));
    if (Above() == 0 || tree_.kind(stack_.back()) != kind) {
      return DataLossError("items for what is no {}", kind == Kind::kDict ? "dict" : "list");
    }
    if (kind == Kind::kDict && ids.size() % 2 != 0) {
      return DataLossError("a key without a value");
    }
    auto& items = ContainerOf(stack_.back());
    items.insert(items.end(), ids.begin(), ids.end());
    return Status::Ok();
  }

  std::vector<PickleId>& ContainerOf(PickleId id) {
    return tree_.containers_[static_cast<size_t>(tree_.values_[id].number)];
  }

  PickleGlobal GlobalOf(PickleId id) const {
    return static_cast<PickleGlobal>(tree_.values_[id].global);
  }

  Handled Constants(uint8_t opcode);
  Handled Texts(uint8_t opcode);
  Handled Containers(uint8_t opcode);
  Handled Bookkeeping(uint8_t opcode);
  Handled Objects(uint8_t opcode);

  Status PushLine(bool is_long);
  Status PushLong(uint64_t bytes);
  template <typename Length>
  Status PushCounted(Kind kind);
  Status PushTopTuple(size_t count);
  Status PushMarked(Kind kind);
  Status ExtendTop(Kind kind, size_t count);
  Status ExtendMarked(Kind kind);
  Status Stop();
  Status Remember(size_t place);
  Status Recall(size_t place);
  Status PushGlobal(std::string_view module, std::string_view name);
  Status StackGlobal();
  Status PushPersistent();
  Status Call();
  Status CallDict(std::span<const PickleId> arguments);
  Status CallTensor(PickleGlobal global, std::span<const PickleId> arguments);
  Status Build();
  bool IsShape(PickleId id) const;

  PickleTree tree_;
  std::string_view text_;
  size_t position_ = 0;
  bool stopped_ = false;
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;  ///< Heights of the stack at the open marks.
  std::vector<PickleId> memo_;
  size_t items_ = 0;
};

}  // namespace heddle::checkpoint
