#include "checkpoint/convert/model_view.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.h"
#include "checkpoint/convert/piecewise_view.h"
#include "checkpoint/format/layout.h"
#include "engine/graph/models/names.h"

namespace heddle::checkpoint {

namespace {

/// What torch.compile and DistributedDataParallel put before every name of the model that they
/// wrap.
std::string WrapperPrefix(const std::map<std::string, size_t>& weights) {
  std::string prefix;
  for (size_t length = std::string::npos; length != prefix.size();) {
    length = prefix.size();
    for (const std::string_view wrapper : {"module.", "_orig_mod."}) {
      const std::string longer = prefix + std::string(wrapper);
      if (!weights.empty() && std::all_of(weights.begin(), weights.end(), [&](const auto& weight) {
            return weight.first.starts_with(longer);
          })) {
        prefix = longer;
      }
    }
  }
  return prefix;
}

/// The weights of a file by name; in native ones the moments are not among them.
std::map<std::string, size_t> Weights(const TensorSource& source) {
  std::map<std::string, size_t> weights;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const FileTensor& tensor = source.tensors()[i];
    if (tensor.role.empty() || tensor.role == kWeightRole) {
      weights.emplace(tensor.name, i);
    }
  }
  return weights;
}

/// What files of these models hold besides weights: tables that follow from config.json.
bool IsDerived(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}

/// Tables with a row a token, which may have rows beyond the vocabulary.
bool HasVocabulary(const std::string& name) {
  constexpr std::array<std::string_view, 5> kNames = {"embedding.weight", "head.weight",
                                                      "model.embed_tokens.weight",
                                                      "transformer.wte.weight", "lm_head.weight"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// Calls `look` with the tiles of box `box` of a tensor until it returns false; whether it never
/// did.
Result<bool> AllTiles(const TensorSource& source,
                      size_t tensor,
                      const Box& box,
                      const std::function<Result<bool>(const Box&, const Bytes&)>& look) {
  constexpr int64_t kTileElements = int64_t{4} << 20;
  const int64_t element = SizeOf(*source.tensors()[tensor].dtype);
  const ChunkGrid tiles(box.extent, ContiguousTile(box.extent, kTileElements));
  Bytes bytes;
  for (int64_t i = 0; i < tiles.count(); ++i) {
    const Box tile = Shifted(tiles.Clipped(i), box.offset, 1);
    bytes.resize(static_cast<size_t>(ElementCount(tile.extent) * element));
    HEDDLE_RETURN_IF_ERROR(source.Read(tensor, tile, bytes));
    HEDDLE_ASSIGN_OR_RETURN(const bool goes_on, look(tile, bytes));
    if (!goes_on) {
      return false;
    }
  }
  return true;
}

Result<bool> AreEqual(const TensorSource& source, size_t a, size_t b) {
  const FileTensor& first = source.tensors()[a];
  const FileTensor& second = source.tensors()[b];
  if (first.shape != second.shape || first.dtype != second.dtype || !first.dtype) {
    return false;
  }
  Bytes other;
  return AllTiles(source, a, WholeBox(first.shape),
                  [&](const Box& tile, const Bytes& bytes) -> Result<bool> {
                    other.resize(bytes.size());
                    HEDDLE_RETURN_IF_ERROR(source.Read(b, tile, other));
                    return bytes == other;
                  });
}

/// Rows from `rows` on are zeros.
Result<bool> IsPadding(const TensorSource& source, size_t tensor, int64_t rows) {
  Box box = WholeBox(source.tensors()[tensor].shape);
  box.offset[0] = rows;
  box.extent[0] -= rows;
  return AllTiles(source, tensor, box, [](const Box& /*tile*/, const Bytes& bytes) -> Result<bool> {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  });
}

/// A few names and how many more there are.
std::string Some(const std::vector<std::string>& names) {
  constexpr size_t kMax = 5;
  const auto shown = std::min(names.size(), kMax);
  return fmt::format("{}{}",
                     fmt::join(names.begin(), names.begin() + static_cast<long>(shown), ", "),
                     names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "");
}

/// Builds a view tensor by tensor and keeps what was used.
class ViewBuilder {
 public:
  explicit ViewBuilder(const TensorSource& source) : source_(source), weights_(Weights(source)) {
    if (const std::string prefix = WrapperPrefix(weights_); !prefix.empty()) {
      std::map<std::string, size_t> bare;
      for (const auto& [name, index] : weights_) {
        bare.emplace(name.substr(prefix.size()), index);
      }
      weights_ = std::move(bare);
      notes.push_back(fmt::format("names are read without their prefix '{}'", prefix));
    }
  }

  /// `other` is the tensor of name `name` where the file lacks that: tied tensors are stored once.
  void Tie(const std::string& name, const std::string& other) {
    if (!Find(name)) {
      if (auto tied = weights_.extract(other)) {
        tied.key() = name;
        weights_.insert(std::move(tied));
      }
    }
  }

  /// The file's tensor `name`, if it has it, also without the prefix that bare models lack.
  std::optional<size_t> Find(const std::string& name) {
    auto found = weights_.find(name);
    for (const std::string_view prefix : {"transformer.", "model."}) {
      if (found == weights_.end() && name.starts_with(prefix)) {
        found = weights_.find(name.substr(prefix.size()));
      }
    }
    return found == weights_.end() ? std::nullopt : std::optional(found->second);
  }

  /// Adds `piece` of tensor `name`; `input_shape` is what the file's tensor must have.
  Status Add(const std::string& name, const Shape& shape, Piece piece, const Shape& input_shape);
  /// Errors: kInvalidArgument naming tensors that no part of the model uses.
  Status CheckUnused(bool tied);
  /// A tensor that no part of the model has used so far; empty: there is none.
  std::string FirstUnused() const;

  std::vector<std::string> notes;

  /// In the order in which they were added: the model's.
  std::vector<ViewedTensor> Take() { return std::move(viewed_); }

 private:
  const TensorSource& source_;
  std::map<std::string, size_t> weights_;
  std::vector<ViewedTensor> viewed_;
  std::map<std::string, size_t> places_;  ///< In viewed_, by name.
  std::set<size_t> used_;
};

Status ViewBuilder::Add(const std::string& name,
                        const Shape& shape,
                        Piece piece,
                        const Shape& input_shape) {
  const FileTensor& input = source_.tensors()[piece.input];
  if (!input.dtype) {
    return InvalidArgumentError("tensor '{}': elements of type {} are not supported", input.name,
                                input.type);
  }
  // A vocabulary may be padded with rows: they lie behind the rows of the model.
  const bool padded = input.shape.size() == 2 && input_shape.size() == 2 &&
                      input.shape[1] == input_shape[1] && input.shape[0] > input_shape[0] &&
                      HasVocabulary(name);
  if (input.shape != input_shape && !padded) {
    return InvalidArgumentError("tensor '{}' has shape {}, config.json makes it {}", input.name,
                                ToString(input.shape), ToString(input_shape));
  }
  if (padded) {
    HEDDLE_ASSIGN_OR_RETURN(const bool zeros, IsPadding(source_, piece.input, input_shape[0]));
    if (!zeros) {
      return InvalidArgumentError(
          "tensor '{}' has {} rows, config.json's vocabulary {}, and the others are not padding",
          input.name, input.shape[0], input_shape[0]);
    }
    notes.push_back(fmt::format("tensor '{}': {} rows beyond the vocabulary are left out",
                                input.name, input.shape[0] - input_shape[0]));
  }
  used_.insert(piece.input);
  const auto [place, added] = places_.emplace(name, viewed_.size());
  if (added) {
    viewed_.emplace_back();
  }
  ViewedTensor& viewed = viewed_[place->second];
  if (added) {
    viewed.tensor = {.name = name,
                     .role = kWeightRole,
                     .type = input.type,
                     .dtype = input.dtype,
                     .shape = shape,
                     .bytes = ElementCount(shape) * SizeOf(*input.dtype),
                     .stored_bytes = 0};
  }
  if (viewed.tensor.dtype != input.dtype) {
    return InvalidArgumentError("tensor '{}' is {} and other parts of '{}' are {}", input.name,
                                input.type, name, viewed.tensor.type);
  }
  viewed.tensor.stored_bytes += input.stored_bytes;
  viewed.pieces.push_back(std::move(piece));
  return Status::Ok();
}

std::string ViewBuilder::FirstUnused() const {
  const auto found = std::find_if(weights_.begin(), weights_.end(), [&](const auto& weight) {
    return !used_.contains(weight.second) && !IsDerived(weight.first);
  });
  return found == weights_.end() ? "" : found->first;
}

Status ViewBuilder::CheckUnused(bool tied) {
  std::vector<std::string> derived;
  std::vector<std::string> unexpected;
  for (const auto& [name, index] : weights_) {
    if (used_.contains(index)) {
      continue;
    }
    const bool head = tied && (name == "lm_head.weight" || name == "head.weight");
    (IsDerived(name) || head ? derived : unexpected).push_back(name);
  }
  if (!unexpected.empty()) {
    return InvalidArgumentError("not part of the model that config.json describes: {}",
                                Some(unexpected));
  }
  if (!derived.empty()) {
    notes.push_back(fmt::format("left out, because they follow from the rest: {}", Some(derived)));
  }
  return Status::Ok();
}

Box WholeOf(const graph::NameMapping& mapping) {
  return WholeBox(mapping.shape);
}

/// One entry of a model's table of names as a piece of the view.
Status AddMapping(ViewBuilder& builder,
                  const graph::NameMapping& mapping,
                  Naming naming,
                  bool from_ours,
                  std::vector<std::string>& missing) {
  const std::string& input_name = from_ours ? mapping.name : mapping.foreign_name;
  const auto input = builder.Find(input_name);
  if (!input) {
    missing.push_back(input_name);
    return Status::Ok();
  }
  const bool to_ours = naming == Naming::kHeddle;
  const std::string& name = to_ours ? mapping.name : mapping.foreign_name;
  const Shape& shape = to_ours ? mapping.shape : mapping.foreign_shape;
  const Shape& input_shape = from_ours ? mapping.shape : mapping.foreign_shape;
  const bool turned = from_ours != to_ours && mapping.transpose;
  return builder.Add(name, shape,
                     {.input = *input,
                      .input_box = from_ours ? WholeOf(mapping) : mapping.box,
                      .output_box = to_ours ? WholeOf(mapping) : mapping.box,
                      .transpose = turned},
                     input_shape);
}

/// The weights as they are named in the file.
ModelView Unchanged(std::unique_ptr<TensorSource> source, std::string note) {
  ModelView view;
  std::vector<ViewedTensor> viewed;
  for (const auto& [name, index] : Weights(*source)) {
    FileTensor tensor = source->tensors()[index];
    tensor.role = kWeightRole;
    const Box whole = WholeBox(tensor.shape);
    viewed.push_back({.tensor = std::move(tensor),
                      .pieces = {{.input = index, .input_box = whole, .output_box = whole}}});
  }
  view.notes.push_back(std::move(note));
  view.source = MakePiecewiseView(std::move(source), std::move(viewed));
  return view;
}

}  // namespace

Result<ModelView> ViewAs(std::unique_ptr<TensorSource> source, Naming naming) {
  if (source->config().empty()) {
    return Unchanged(std::move(source), "there is no config.json: names stay as they are");
  }
  const auto config = graph::ParseModelConfig(source->config());
  if (!config.ok()) {
    return Unchanged(std::move(source), fmt::format("config.json: {}: names stay as they are",
                                                    config.status().message()));
  }
  const auto mappings = graph::HuggingFaceNames(*config);
  ViewBuilder builder(*source);
  if (config->tie_word_embeddings) {
    builder.Tie(mappings.front().name, "head.weight");
    builder.Tie(mappings.front().foreign_name, "lm_head.weight");
  }
  // Which names the file has is seen in it: a native checkpoint may hold a foreign model unchanged.
  const bool from_ours = builder.Find(mappings.front().name).has_value();
  const auto input_name = [&](const graph::NameMapping& mapping) {
    return from_ours ? mapping.name : mapping.foreign_name;
  };
  ModelView view;
  std::vector<std::string> missing;
  for (const graph::NameMapping& mapping : mappings) {
    HEDDLE_RETURN_IF_ERROR(AddMapping(builder, mapping, naming, from_ours, missing));
  }
  if (!missing.empty()) {
    const std::string unused = builder.FirstUnused();
    return InvalidArgumentError(
        "the model that config.json describes also has: {}{}", Some(missing),
        unused.empty() ? "" : fmt::format("; the file has another name, {}", unused));
  }
  HEDDLE_RETURN_IF_ERROR(builder.CheckUnused(config->tie_word_embeddings));
  const auto head = builder.Find(from_ours ? "head.weight" : "lm_head.weight");
  if (config->tie_word_embeddings && head) {
    HEDDLE_ASSIGN_OR_RETURN(const bool tied,
                            AreEqual(*source, *head, *builder.Find(input_name(mappings.front()))));
    if (!tied) {
      return InvalidArgumentError(
          "config.json ties the head to the embedding, but tensor '{}' differs from it",
          source->tensors()[*head].name);
    }
  }
  view.notes = std::move(builder.notes);
  view.renamed = true;
  auto viewed = builder.Take();
  view.source = MakePiecewiseView(std::move(source), std::move(viewed));
  return view;
}

}  // namespace heddle::checkpoint
