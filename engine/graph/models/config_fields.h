/// \file
/// The fields of Hugging Face's config.json that do not affect what a model computes.
#pragma once

#include <string_view>

namespace heddle::graph {

/// Whether a field of a causal model's config.json is known not to affect any logit or gradient,
/// whatever its value: the file's origin, the element type, special tokens, heads for other tasks,
/// and settings of text generation.
bool IsIrrelevantField(std::string_view name);

}  // namespace heddle::graph
