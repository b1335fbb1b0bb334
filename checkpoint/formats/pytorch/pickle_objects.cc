#include <algorithm>

#include "checkpoint/format/layout.h"
#include "checkpoint/formats/pytorch/pickle_machine.h"

namespace heddle::checkpoint {

using Kind = PickleTree::Kind;

namespace {

constexpr PickleId kNothing = UINT32_MAX;
constexpr uint8_t kMaxProtocol = 5;
constexpr size_t kMaxGlobalName = 256;

}  // namespace

// Protocol, marks and memo.

PickleMachine::Handled PickleMachine::Bookkeeping(uint8_t opcode) {
  const auto at = [&](const auto& place, Status (PickleMachine::*action)(size_t)) {
    return place.ok() ? (this->*action)(*place) : place.status();
  };
  switch (opcode) {
    case 0x80: {  // PROTO
      const auto protocol = Number<uint8_t>();
      return protocol.ok() && *protocol > kMaxProtocol
                 ? InvalidArgumentError("pickle protocol {} is not read", *protocol)
                 : protocol.status();
    }
    case 0x95:  // FRAME: a hint for readers of streams.
      return Number<uint64_t>().status();
    case '(':
      marks_.push_back(stack_.size());
      return marks_.size() > kMaxPickleDepth ? TooMany("levels", kMaxPickleDepth) : Status::Ok();
    case '0':
      return Above() == 0 ? PopToMark().status() : Pop().status();
    case '1':
      return PopToMark().status();
    case '2':
      return Above() == 0 ? DataLossError("a value is missing") : Push(stack_.back());
    case 'q':
      return at(Number<uint8_t>(), &PickleMachine::Remember);
    case 'r':
      return at(Number<uint32_t>(), &PickleMachine::Remember);
    case 0x94:  // MEMOIZE
      return Remember(memo_.size());
    case 'h':
      return at(Number<uint8_t>(), &PickleMachine::Recall);
    case 'j':
      return at(Number<uint32_t>(), &PickleMachine::Recall);
    case '.':
      return Stop();
    default:
      return std::nullopt;
  }
}

Status PickleMachine::Stop() {
  if (!marks_.empty()) {
    return DataLossError("a mark is left");
  }
  HEDDLE_ASSIGN_OR_RETURN(tree_.root_, Pop());
  stopped_ = true;
  return Status::Ok();
}

Status PickleMachine::Remember(size_t place) {
  if (Above() == 0) {
    return DataLossError("a value is missing");
  }
  if (place >= kMaxPickleValues) {
    return TooMany("memo entries", kMaxPickleValues);
  }
  if (place >= memo_.size()) {
    memo_.resize(place + 1, kNothing);
  }
  memo_[place] = stack_.back();
  return Status::Ok();
}

Status PickleMachine::Recall(size_t place) {
  if (place >= memo_.size() || memo_[place] == kNothing) {
    return DataLossError("memo entry {} does not exist", place);
  }
  return Push(memo_[place]);
}

// Globals, and what is made of them.

PickleMachine::Handled PickleMachine::Objects(uint8_t opcode) {
  switch (opcode) {
    case 'c': {
      HEDDLE_ASSIGN_OR_RETURN(const auto module, Line());
      HEDDLE_ASSIGN_OR_RETURN(const auto name, Line());
      return PushGlobal(module, name);
    }
    case 0x93:
      return StackGlobal();
    case 'Q':
      return PushPersistent();
    case 'R':
    case 0x81:  // NEWOBJ: for the classes that are known, the same.
      return Call();
    case 'b':
      return Build();
    default:
      return std::nullopt;
  }
}

Status PickleMachine::PushGlobal(std::string_view module, std::string_view name) {
  if (module.size() + name.size() > kMaxGlobalName) {
    return DataLossError("a global's name has {} bytes", module.size() + name.size());
  }
  const auto global = FindPickleGlobal(module, name);
  if (!global) {
    return InvalidArgumentError(
        "pickled code is never run: global '{}.{}'; save the model's state_dict() instead", module,
        name);
  }
  return PushNew({.kind = Kind::kGlobal,
                  .global = static_cast<uint8_t>(*global),
                  .size = static_cast<uint32_t>(name.size()),
                  .number = name.data() - text_.data()});
}

Status PickleMachine::StackGlobal() {
  HEDDLE_ASSIGN_OR_RETURN(const PickleId name, PopKind(Kind::kText, "a global's name"));
  HEDDLE_ASSIGN_OR_RETURN(const PickleId module, PopKind(Kind::kText, "a global's module"));
  return PushGlobal(tree_.Text(module), tree_.Text(name));
}

/// ('storage', class, key, device, elements): the one thing that torch.save keeps outside a pickle.
Status PickleMachine::PushPersistent() {
  HEDDLE_ASSIGN_OR_RETURN(const PickleId id, PopKind(Kind::kTuple, "a persistent id"));
  const auto is = [&](size_t i, Kind kind) { return tree_.kind(tree_.Item(id, i)) == kind; };
  if (tree_.Size(id) < 5 || !is(0, Kind::kText) || tree_.Text(tree_.Item(id, 0)) != "storage" ||
      !is(1, Kind::kGlobal) || GlobalOf(tree_.Item(id, 1)) != PickleGlobal::kStorage ||
      !is(2, Kind::kText) || !is(4, Kind::kInt)) {
    return DataLossError("a persistent id is no storage of torch");
  }
  if (tree_.storages_.size() >= kMaxPickleTensors) {
    return TooMany("storages", kMaxPickleTensors);
  }
  tree_.storages_.push_back({.type = tree_.Text(tree_.Item(id, 1)),
                             .key = tree_.Text(tree_.Item(id, 2)),
                             .elements = tree_.Integer(tree_.Item(id, 4))});
  return PushNew(
      {.kind = Kind::kStorage, .number = static_cast<int64_t>(tree_.storages_.size()) - 1});
}

/// What a global gives for a tuple of arguments.
Status PickleMachine::Call() {
  HEDDLE_ASSIGN_OR_RETURN(const PickleId tuple, PopKind(Kind::kTuple, "a list of arguments"));
  HEDDLE_ASSIGN_OR_RETURN(const PickleId callee, PopKind(Kind::kGlobal, "what is called"));
  std::vector<PickleId> arguments;
  const size_t count = std::min<size_t>(tree_.Size(tuple), 16);  // More than any has.
  for (size_t i = 0; i < count; ++i) {
    arguments.push_back(tree_.Item(tuple, i));
  }
  const PickleGlobal global = GlobalOf(callee);
  switch (global) {
    case PickleGlobal::kOrderedDict:
    case PickleGlobal::kNamespace:
      HEDDLE_RETURN_IF_ERROR(CallDict(arguments));
      tree_.values_[stack_.back()].global = static_cast<uint8_t>(global);
      return Status::Ok();
    case PickleGlobal::kSize:
      if (arguments.size() != 1 || tree_.kind(arguments[0]) != Kind::kTuple) {
        return DataLossError("a torch.Size of something else than a tuple");
      }
      return Push(arguments[0]);
    case PickleGlobal::kDevice:
      return PushNew({.kind = Kind::kOther});
    case PickleGlobal::kRebuildTensor:
    case PickleGlobal::kRebuildTensorV2:
    case PickleGlobal::kRebuildTensorV3:
      return CallTensor(global, arguments);
    case PickleGlobal::kRebuildParameter:
    case PickleGlobal::kRebuildParameterWithState:
      if (arguments.empty() || tree_.kind(arguments[0]) != Kind::kTensor) {
        return DataLossError("a parameter without a tensor");
      }
      return Push(arguments[0]);
    default:
      return DataLossError("'{}' cannot be called", tree_.Text(callee));
  }
}

/// An empty dict, or that of a list of pairs.
Status PickleMachine::CallDict(std::span<const PickleId> arguments) {
  std::vector<PickleId> items;
  if (!arguments.empty()) {
    const PickleId pairs = arguments[0];
    if (tree_.kind(pairs) != Kind::kList) {
      return DataLossError("an OrderedDict of something else than a list");
    }
    for (size_t i = 0; i < tree_.Size(pairs); ++i) {
      const PickleId pair = tree_.Item(pairs, i);
      const Kind kind = tree_.kind(pair);
      if ((kind != Kind::kTuple && kind != Kind::kList) || tree_.Size(pair) != 2) {
        return DataLossError("an OrderedDict of something else than pairs");
      }
      items.push_back(tree_.Item(pair, 0));
      items.push_back(tree_.Item(pair, 1));
    }
  }
  return PushContainer(Kind::kDict, std::move(items));
}

bool PickleMachine::IsShape(PickleId id) const {
  const Kind kind = tree_.kind(id);
  if ((kind != Kind::kTuple && kind != Kind::kList) || tree_.Size(id) > kMaxRank) {
    return false;
  }
  for (size_t i = 0; i < tree_.Size(id); ++i) {
    if (tree_.kind(tree_.Item(id, i)) != Kind::kInt) {
      return false;
    }
  }
  return true;
}

/// (storage, offset, shape, strides), and from version 2 (requires_grad, hooks), in version 3 the
/// type.
Status PickleMachine::CallTensor(PickleGlobal global, std::span<const PickleId> arguments) {
  const bool has_type = global == PickleGlobal::kRebuildTensorV3;
  const size_t needed = global == PickleGlobal::kRebuildTensor ? 4 : has_type ? 7 : 6;
  if (arguments.size() < needed || tree_.kind(arguments[0]) != Kind::kStorage ||
      tree_.kind(arguments[1]) != Kind::kInt || !IsShape(arguments[2]) || !IsShape(arguments[3]) ||
      (has_type && (tree_.kind(arguments[6]) != Kind::kGlobal ||
                    GlobalOf(arguments[6]) != PickleGlobal::kElementType))) {
    return DataLossError("a tensor is not (storage, offset, shape, strides, …)");
  }
  if (tree_.tensors_.size() >= kMaxPickleTensors) {
    return TooMany("tensors", kMaxPickleTensors);
  }
  tree_.tensors_.push_back({.storage = static_cast<uint32_t>(tree_.values_[arguments[0]].number),
                            .shape = arguments[2],
                            .stride = arguments[3],
                            .offset = tree_.Integer(arguments[1]),
                            .type = has_type ? tree_.Text(arguments[6]) : std::string_view()});
  return PushNew(
      {.kind = Kind::kTensor, .number = static_cast<int64_t>(tree_.tensors_.size()) - 1});
}

/// Attributes. Those of a Namespace are its content; those of an OrderedDict (notes such as
/// _metadata) and of a tensor are left out.
Status PickleMachine::Build() {
  HEDDLE_ASSIGN_OR_RETURN(const PickleId state, Pop());
  if (Above() == 0) {
    return DataLossError("a value is missing");
  }
  const PickleId object = stack_.back();
  if (tree_.kind(object) == Kind::kTensor) {
    return Status::Ok();
  }
  if (tree_.kind(object) != Kind::kDict || tree_.kind(state) != Kind::kDict) {
    return DataLossError("attributes for what has none");
  }
  if (tree_.values_[object].global != static_cast<uint8_t>(PickleGlobal::kNamespace)) {
    return Status::Ok();
  }
  const std::vector<PickleId> items = ContainerOf(state);
  return Extend(Kind::kDict, items);
}

}  // namespace heddle::checkpoint
