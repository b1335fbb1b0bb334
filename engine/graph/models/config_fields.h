/// \file
/// The fields of Hugging Face's config.json that say nothing of what a model computes.
#pragma once

#include <string_view>

namespace heddle::graph {

/// Whether a field of a causal model's config.json is known to leave every logit and gradient as
/// they are, whatever its value: where the file comes from, the type of the elements, tokens with a
/// meaning, heads for other tasks, and how text is generated.
bool IsIrrelevantField(std::string_view name);

}  // namespace heddle::graph
