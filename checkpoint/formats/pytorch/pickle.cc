#include "checkpoint/formats/pytorch/pickle.h"

#include <charconv>

#include "checkpoint/formats/pytorch/pickle_machine.h"

namespace heddle::checkpoint {

using Kind = PickleTree::Kind;

Result<PickleTree> PickleMachine::Run() {
  while (!stopped_) {
    const size_t at = position_;
    HEDDLE_RETURN_IF_ERROR(Step().WithContext("data.pkl, byte {}", at));
  }
  return std::move(tree_);
}

Status PickleMachine::Step() {
  HEDDLE_ASSIGN_OR_RETURN(const auto opcode, Number<uint8_t>());
  for (const auto group :
       {&PickleMachine::Constants, &PickleMachine::Texts, &PickleMachine::Containers,
        &PickleMachine::Bookkeeping, &PickleMachine::Objects}) {
    if (auto status = (this->*group)(opcode)) {
      return *std::move(status);
    }
  }
  return DataLossError("opcode 0x{:02x} is none that torch.save writes", opcode);
}

// Numbers.

PickleMachine::Handled PickleMachine::Constants(uint8_t opcode) {
  const auto push = [&](Kind kind, const auto& number) {
    return number.ok() ? PushNew({.kind = kind, .number = static_cast<int64_t>(*number)})
                       : number.status();
  };
  switch (opcode) {
    case 'N':
      return PushNew({});
    case 0x88:  // NEWTRUE, NEWFALSE
    case 0x89:
      return PushNew({.kind = Kind::kBool, .number = opcode == 0x88});
    case 'K':
      return push(Kind::kInt, Number<uint8_t>());
    case 'M':
      return push(Kind::kInt, Number<uint16_t>());
    case 'J':
      return push(Kind::kInt, Number<int32_t>());
    case 'I':
    case 'L':
      return PushLine(opcode == 'L');
    case 0x8A: {  // LONG1
      const auto bytes = Number<uint8_t>();
      return bytes.ok() ? PushLong(*bytes) : bytes.status();
    }
    case 0x8B: {  // LONG4
      const auto bytes = Number<uint32_t>();
      return bytes.ok() ? PushLong(*bytes) : bytes.status();
    }
    case 'G': {  // Big-endian, alone of all.
      const auto bits = Number<uint64_t>();
      return bits.ok() ? PushNew({.kind = Kind::kFloat,
                                  .number = static_cast<int64_t>(__builtin_bswap64(*bits))})
                       : bits.status();
    }
    default:
      return std::nullopt;
  }
}

/// An integer in digits; "00" and "01" are how protocol 1 writes bools.
Status PickleMachine::PushLine(bool is_long) {
  HEDDLE_ASSIGN_OR_RETURN(auto line, Line());
  if (!is_long && (line == "00" || line == "01")) {
    return PushNew({.kind = Kind::kBool, .number = line == "01"});
  }
  if (is_long && line.ends_with('L')) {
    line.remove_suffix(1);
  }
  int64_t number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (end != line.data() + line.size() || line.empty()) {
    return DataLossError("an integer is not one");
  }
  return error == std::errc() ? PushNew({.kind = Kind::kInt, .number = number})
                              : PushNew({.kind = Kind::kOther});
}

/// Two's complement, little-endian, as many bytes as it needs.
Status PickleMachine::PushLong(uint64_t bytes) {
  HEDDLE_ASSIGN_OR_RETURN(const auto raw, Take(bytes));
  if (raw.size() > sizeof(int64_t)) {
    return PushNew({.kind = Kind::kOther});
  }
  uint64_t number = !raw.empty() && (raw.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
  for (size_t i = raw.size(); i-- > 0;) {
    number = number << 8 | static_cast<uint8_t>(raw[i]);
  }
  return PushNew({.kind = Kind::kInt, .number = static_cast<int64_t>(number)});
}

// Texts.

template <typename Length>
Status PickleMachine::PushCounted(Kind kind) {
  HEDDLE_ASSIGN_OR_RETURN(const auto length, Number<Length>());
  HEDDLE_ASSIGN_OR_RETURN(const auto text, Take(length));
  return PushText(kind, text);
}

PickleMachine::Handled PickleMachine::Texts(uint8_t opcode) {
  switch (opcode) {
    case 'U':   // SHORT_BINSTRING
    case 0x8C:  // SHORT_BINUNICODE
      return PushCounted<uint8_t>(Kind::kText);
    case 'T':  // BINSTRING
    case 'X':  // BINUNICODE
      return PushCounted<uint32_t>(Kind::kText);
    case 0x8D:  // BINUNICODE8
      return PushCounted<uint64_t>(Kind::kText);
    case 'C':  // SHORT_BINBYTES
      return PushCounted<uint8_t>(Kind::kBytes);
    case 'B':  // BINBYTES
      return PushCounted<uint32_t>(Kind::kBytes);
    case 0x8E:  // BINBYTES8
    case 0x96:  // BYTEARRAY8
      return PushCounted<uint64_t>(Kind::kBytes);
    default:
      return std::nullopt;
  }
}

// Containers.

Status PickleMachine::PushTopTuple(size_t count) {
  if (Above() < count) {
    return DataLossError("a value is missing");
  }
  const std::vector<PickleId> ids(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
  stack_.resize(stack_.size() - count);
  return PushTuple(ids);
}

Status PickleMachine::PushMarked(Kind kind) {
  HEDDLE_ASSIGN_OR_RETURN(auto ids, PopToMark());
  return kind == Kind::kTuple ? PushTuple(ids) : PushContainer(kind, std::move(ids));
}

Status PickleMachine::ExtendTop(Kind kind, size_t count) {
  if (Above() < count) {
    return DataLossError("a value is missing");
  }
  const std::vector<PickleId> ids(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
  stack_.resize(stack_.size() - count);
  return Extend(kind, ids);
}

Status PickleMachine::ExtendMarked(Kind kind) {
  HEDDLE_ASSIGN_OR_RETURN(const auto ids, PopToMark());
  return Extend(kind, ids);
}

PickleMachine::Handled PickleMachine::Containers(uint8_t opcode) {
  switch (opcode) {
    case ')':
      return PushTuple({});
    case 0x85:  // TUPLE1 to TUPLE3
    case 0x86:
    case 0x87:
      return PushTopTuple(opcode - size_t{0x84});
    case 't':
      return PushMarked(Kind::kTuple);
    case ']':
      return PushContainer(Kind::kList, {});
    case 'l':
      return PushMarked(Kind::kList);
    case 'a':
      return ExtendTop(Kind::kList, 1);
    case 'e':
      return ExtendMarked(Kind::kList);
    case '}':
      return PushContainer(Kind::kDict, {});
    case 'd':
      return PushMarked(Kind::kDict);
    case 's':
      return ExtendTop(Kind::kDict, 2);
    case 'u':
      return ExtendMarked(Kind::kDict);
    default:
      return std::nullopt;
  }
}

// The tree.

std::string_view PickleTree::Text(PickleId id) const {
  const Value& value = values_[id];
  return std::string_view(*text_).substr(static_cast<size_t>(value.number), value.size);
}

size_t PickleTree::Size(PickleId id) const {
  const Value& value = values_[id];
  if (value.kind == Kind::kTuple) {
    return value.size;
  }
  const size_t items = containers_[static_cast<size_t>(value.number)].size();
  return value.kind == Kind::kDict ? items / 2 : items;
}

PickleId PickleTree::Item(PickleId id, size_t i) const {
  const Value& value = values_[id];
  const auto number = static_cast<size_t>(value.number);
  return value.kind == Kind::kTuple
             ? tuple_items_[number + i]
             : containers_[number][value.kind == Kind::kDict ? 2 * i + 1 : i];
}

PickleId PickleTree::Key(PickleId id, size_t i) const {
  return containers_[static_cast<size_t>(values_[id].number)][2 * i];
}

const PickledTensor& PickleTree::Tensor(PickleId id) const {
  return tensors_[static_cast<size_t>(values_[id].number)];
}

Shape PickleTree::ShapeOf(PickleId id) const {
  Shape shape;
  for (size_t i = 0; i < Size(id); ++i) {
    shape.push_back(Integer(Item(id, i)));
  }
  return shape;
}

Result<PickleTree> ReadPickle(std::string text) {
  if (text.size() > static_cast<size_t>(kMaxPickleBytes)) {
    return InvalidArgumentError("a pickle of {} bytes; at most {} are read", text.size(),
                                kMaxPickleBytes);
  }
  return PickleMachine(std::move(text)).Run();
}

}  // namespace heddle::checkpoint
