#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/formats/pytorch/pickle.h"
#include "checkpoint/formats/pytorch/pytorch.h"
#include "checkpoint/formats/pytorch/pytorch_types.h"
#include "checkpoint/formats/pytorch/strided_view.h"
#include "checkpoint/formats/pytorch/zip.h"

namespace heddle::checkpoint {

namespace {

using Kind = PickleTree::Kind;
using Entries = std::map<std::string, ZipEntry>;

constexpr std::string_view kZipMagic("PK\3\4", 4);
/// Protocol 2 and the integer 0x1950a86a20f9469cfc6c: a file from before zip archives
/// (PyTorch 1.6).
constexpr std::string_view kOldMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",
                                     14);
constexpr std::string_view kTarMagic = "ustar";
constexpr size_t kTarMagicAt = 257;
constexpr std::string_view kPickleName = "/data.pkl";
constexpr std::string_view kConstantsName = "/constants.pkl";  ///< Entry of TorchScript programs.
constexpr int64_t kHeadBytes = 4096;
constexpr int64_t kTailBytes = 65536;
constexpr size_t kMaxSteps = kMaxPickleValues;
constexpr int64_t kMaxGrowth = 64;
constexpr int64_t kFreeBytes = int64_t{1} << 30;

/// At most `bytes` from `offset`; what cannot be read is left out.
std::string Piece(const SourceFile& file, int64_t offset, int64_t bytes) {
  std::string piece(static_cast<size_t>(std::clamp<int64_t>(file.bytes() - offset, 0, bytes)),
                    '\0');
  return file.ReadAt(offset, std::as_writable_bytes(std::span(piece))).ok() ? piece : std::string();
}

/// Where an archive's directory, or the end of it, lies.
std::string Tail(const SourceFile& file) {
  return Piece(file, std::max<int64_t>(file.bytes() - kTailBytes, 0), kTailBytes);
}

bool IsTar(std::string_view head) {
  return head.size() > kTarMagicAt && head.substr(kTarMagicAt).starts_with(kTarMagic);
}

/// A tensor of the pickle and its name.
struct Named {
  std::string name;
  PickleId tensor = 0;
};

/// The tensors of a dict, by name. Dicts may share others and hold themselves, so the way is
/// bounded.
class Flattener {
 public:
  explicit Flattener(const PickleTree& tree) : tree_(tree) {}

  Result<std::vector<Named>> Run(PickleId root) {
    HEDDLE_RETURN_IF_ERROR(Walk(root, "", 0));
    std::sort(found_.begin(), found_.end(),
              [](const Named& left, const Named& right) { return left.name < right.name; });
    const auto twice = std::adjacent_find(
        found_.begin(), found_.end(),
        [](const Named& left, const Named& right) { return left.name == right.name; });
    if (twice != found_.end()) {
      return DataLossError("two tensors are called '{}'", twice->name);
    }
    return std::move(found_);
  }

 private:
  /// No deeper than kMaxStateDepth.
  Status Walk(PickleId id, const std::string& name, size_t depth) {
    if (++steps_ > kMaxSteps || depth > kMaxStateDepth || name.size() > kMaxTensorName ||
        found_.size() > kMaxPickleTensors) {
      return InvalidArgumentError(
          "at most {} tensors, names of {} bytes and {} dicts in each other are read",
          kMaxPickleTensors, kMaxTensorName, kMaxStateDepth);
    }
    const Kind kind = tree_.kind(id);
    if (kind == Kind::kTensor) {
      name_bytes_ += name.size();
      if (name_bytes_ > kMaxTensorNames) {
        return InvalidArgumentError("the names of the tensors have more than {} bytes",
                                    kMaxTensorNames);
      }
      found_.push_back({.name = name, .tensor = id});
    }
    if (kind != Kind::kDict && kind != Kind::kList && kind != Kind::kTuple) {
      return Status::Ok();
    }
    for (size_t i = 0; i < tree_.Size(id); ++i) {
      const std::string key =
          kind == Kind::kDict ? KeyText(tree_.Key(id, i)) : fmt::format("{}", i);
      HEDDLE_RETURN_IF_ERROR(
          Walk(tree_.Item(id, i), name.empty() ? key : fmt::format("{}.{}", name, key), depth + 1));
    }
    return Status::Ok();
  }

  std::string KeyText(PickleId key) const {
    switch (tree_.kind(key)) {
      case Kind::kText:
        return std::string(tree_.Text(key).substr(0, kMaxTensorName + 1));
      case Kind::kInt:
        return fmt::format("{}", tree_.Integer(key));
      default:
        return "?";
    }
  }

  const PickleTree& tree_;
  size_t steps_ = 0;
  size_t name_bytes_ = 0;  ///< Bytes of all names in found_; dicts that share a tensor repeat it.
  std::vector<Named> found_;
};

/// The dict of the model, as pytorch.h says.
Result<PickleId> FindStateDict(const PickleTree& tree) {
  const PickleId root = tree.root();
  if (tree.kind(root) != Kind::kDict) {
    return InvalidArgumentError("holds no dict of tensors: save model.state_dict()");
  }
  for (size_t i = 0; i < tree.Size(root); ++i) {
    const PickleId item = tree.Item(root, i);
    if (tree.kind(item) == Kind::kTensor && !tree.ShapeOf(tree.Tensor(item).shape).empty()) {
      return root;
    }
  }
  for (const std::string_view wanted : {"state_dict", "model", "module"}) {
    for (size_t i = 0; i < tree.Size(root); ++i) {
      const PickleId key = tree.Key(root, i);
      if (tree.kind(key) == Kind::kText && tree.Text(key) == wanted &&
          tree.kind(tree.Item(root, i)) == Kind::kDict) {
        return tree.Item(root, i);
      }
    }
  }
  return root;
}

class PytorchSource : public TensorSource {
 public:
  explicit PytorchSource(std::unique_ptr<SourceFile> file)
      : file_(std::move(file)),
        path_(file_->name()) {}

  /// Reads everything but the elements.
  Status Open() {
    const auto directory = ReadZipDirectory(*file_);
    if (!directory.ok() && Tail(*file_).find(kConstantsName) != std::string::npos) {
      return IsTorchScript();  // TorchScript's source files are compressed.
    }
    HEDDLE_ASSIGN_OR_RETURN(const Entries entries, directory);
    HEDDLE_ASSIGN_OR_RETURN(const std::string prefix, FindPrefix(entries));
    HEDDLE_ASSIGN_OR_RETURN(
        auto text,
        ReadEntry(entries.at(fmt::format("{}{}", prefix, kPickleName)), kMaxPickleBytes));
    const auto tree = ReadPickle(std::move(text));
    HEDDLE_RETURN_IF_ERROR(tree.status().WithContext("{}", path_));
    const auto model = FindStateDict(*tree);
    HEDDLE_RETURN_IF_ERROR(model.status().WithContext("{}", path_));
    auto found = Flattener(*tree).Run(*model);
    HEDDLE_RETURN_IF_ERROR(found.status().WithContext("{}", path_));
    if (found->empty()) {
      return InvalidArgumentError("{}: holds no tensors", path_);
    }
    for (Named& named : *found) {
      const Status status = Add(named, *tree, entries, prefix);
      HEDDLE_RETURN_IF_ERROR(status.WithContext("{}: tensor '{}'", path_, named.name));
    }
    return Status::Ok();
  }

  std::string format() const override { return "pytorch"; }
  const std::vector<FileTensor>& tensors() const override { return tensors_; }

  Status Read(size_t tensor, const Box& box, std::span<std::byte> out) const override {
    const FileTensor& facts = tensors_[tensor];
    const Place& place = places_[tensor];
    Status status = CheckInside(facts.shape, box);
    if (status.ok() && !facts.dtype) {
      status = InvalidArgumentError("elements of type {} are not read", facts.type);
    }
    if (status.ok() &&
        static_cast<int64_t>(out.size()) != ElementCount(box.extent) * place.view.element_bytes) {
      status = InvalidArgumentError("{} bytes for box {}", out.size(), ToString(box));
    }
    if (status.ok()) {
      status = ReadView(place.view, box, *file_, place.begin, out);
    }
    return status.WithContext("{}: tensor '{}'", path_, facts.name);
  }

 private:
  struct Place {
    int64_t begin = 0;  ///< Offset of the storage in the file.
    StridedView view;
  };

  /// What stands before "/data.pkl". Refuses archives that are no state dict of this machine.
  Result<std::string> FindPrefix(const Entries& entries) const {
    std::string prefix;
    for (const auto& [name, entry] : entries) {
      if (name.ends_with(kPickleName)) {
        if (!prefix.empty()) {
          return DataLossError("{}: holds both {}{} and {}", path_, prefix, kPickleName, name);
        }
        prefix = name.substr(0, name.size() - kPickleName.size());
      }
    }
    if (prefix.empty()) {
      return InvalidArgumentError("{}: a ZIP archive without data.pkl is no file of torch.save",
                                  path_);
    }
    if (entries.contains(fmt::format("{}{}", prefix, kConstantsName))) {
      return IsTorchScript();
    }
    if (const auto order = entries.find(prefix + "/byteorder"); order != entries.end()) {
      HEDDLE_ASSIGN_OR_RETURN(const std::string text, ReadEntry(order->second, 16));
      if (text != "little") {
        return InvalidArgumentError("{}: was written in byte order '{}', not little", path_, text);
      }
    }
    return prefix;
  }

  Status IsTorchScript() const {
    return InvalidArgumentError(
        "{}: a TorchScript program, not a state dict: in Python, "
        "torch.save(torch.jit.load(PATH).state_dict(), NEW)",
        path_);
  }

  Result<std::string> ReadEntry(const ZipEntry& entry, int64_t limit) const {
    if (entry.bytes > limit) {
      return InvalidArgumentError("{}: an entry of {} bytes, at most {} are read", path_,
                                  entry.bytes, limit);
    }
    std::string text(static_cast<size_t>(entry.bytes), '\0');
    HEDDLE_RETURN_IF_ERROR(file_->ReadAt(entry.offset, std::as_writable_bytes(std::span(text))));
    return text;
  }

  Status Add(Named& named,
             const PickleTree& tree,
             const Entries& entries,
             const std::string& prefix) {
    const PickledTensor& tensor = tree.Tensor(named.tensor);
    const PickledStorage& storage = tree.Storage(tensor.storage);
    const PytorchType& stored = *FindPytorchStorage(storage.type);
    const PytorchType& type = tensor.type.empty() ? stored : *FindPytorchType(tensor.type);
    if (storage.key.size() > kMaxTensorName) {
      return DataLossError("the key of its storage has {} bytes, at most {} are read",
                           storage.key.size(), kMaxTensorName);
    }
    const auto entry = entries.find(fmt::format("{}/data/{}", prefix, storage.key));
    if (entry == entries.end()) {
      return DataLossError("the archive has no storage '{}'", storage.key);
    }
    const int64_t bytes = entry->second.bytes;
    if (storage.elements < 0 || storage.elements > bytes / stored.bytes) {
      return DataLossError("storage '{}' has {} bytes, too few for {} elements", storage.key, bytes,
                           storage.elements);
    }
    Place place{.begin = entry->second.offset,
                .view = {.offset = tensor.offset,
                         .shape = tree.ShapeOf(tensor.shape),
                         .stride = tree.ShapeOf(tensor.stride),
                         .element_bytes = type.bytes}};
    HEDDLE_RETURN_IF_ERROR(CheckView(place.view, storage.elements * stored.bytes / type.bytes));
    FileTensor facts{.name = {},
                     .role = {},
                     .type = std::string(tensor.type.empty() ? stored.storage : tensor.type),
                     .dtype = type.dtype,
                     .shape = place.view.shape};
    if (__builtin_mul_overflow(ElementCount(facts.shape), type.bytes, &facts.bytes) ||
        __builtin_add_overflow(total_, facts.bytes, &total_) ||
        (total_ - kFreeBytes) / kMaxGrowth > file_->bytes()) {
      return InvalidArgumentError("shape {}: the tensors are far larger than the file",
                                  ToString(facts.shape));
    }
    facts.name = std::move(named.name);
    facts.stored_bytes = std::min(facts.bytes, bytes);
    tensors_.push_back(std::move(facts));
    places_.push_back(std::move(place));
    return Status::Ok();
  }

  const std::unique_ptr<SourceFile> file_;
  const std::string path_;
  std::vector<FileTensor> tensors_;
  std::vector<Place> places_;  ///< The place of each of tensors_.
  int64_t total_ = 0;          ///< Bytes of all tensors.
};

}  // namespace

bool IsPytorchFile(const std::string& path) {
  const auto file = OpenRegularFile(path);
  if (!file.ok()) {
    return false;
  }
  const std::string head = Piece(**file, 0, kHeadBytes);
  if (!head.starts_with(kZipMagic)) {
    return head.starts_with(kOldMagic) || IsTar(head);
  }
  // torch.save writes the pickle first; a packer may not. Its name is in the directory too.
  return head.find(kPickleName) != std::string::npos ||
         Tail(**file).find(kPickleName) != std::string::npos;
}

Result<std::unique_ptr<TensorSource>> OpenPytorchFile(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(auto file, OpenRegularFile(path));
  const std::string head = Piece(*file, 0, kHeadBytes);
  if (head.starts_with(kOldMagic)) {
    return InvalidArgumentError(
        "{}: written by PyTorch before 1.6, or without its zip format: save it again with "
        "torch.save(torch.load(PATH), NEW)",
        path);
  }
  if (IsTar(head)) {
    return InvalidArgumentError("{}: a tar archive: unpack it, or save the model with torch.save",
                                path);
  }
  auto source = std::make_unique<PytorchSource>(std::move(file));
  HEDDLE_RETURN_IF_ERROR(source->Open());
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace heddle::checkpoint
