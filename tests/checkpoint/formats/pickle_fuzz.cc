/// \file
/// The pickle machine: whatever it accepts has values that can be walked.
#include <cstddef>
#include <cstdint>
#include <string>

#include "checkpoint/formats/pytorch/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using heddle::checkpoint::PickleId;
  using heddle::checkpoint::PickleTree;
  using Kind = PickleTree::Kind;
  const auto tree =
      heddle::checkpoint::ReadPickle(std::string(reinterpret_cast<const char*>(data), size));
  if (!tree.ok()) {
    return 0;
  }
  // One level is enough: every value below was built by the same opcodes as the root.
  const PickleId root = tree->root();
  const Kind kind = tree->kind(root);
  size_t seen = 0;
  if (kind == Kind::kText || kind == Kind::kBytes) {
    seen += tree->Text(root).size();
  } else if (kind == Kind::kTuple || kind == Kind::kList || kind == Kind::kDict) {
    for (size_t i = 0; i < tree->Size(root); ++i) {
      seen += static_cast<size_t>(tree->kind(tree->Item(root, i)));
      seen += kind == Kind::kDict ? static_cast<size_t>(tree->kind(tree->Key(root, i))) : 0;
    }
  } else if (kind == Kind::kTensor) {
    const auto& tensor = tree->Tensor(root);
    seen += tree->ShapeOf(tensor.shape).size() + tree->ShapeOf(tensor.stride).size() +
            tree->Storage(tensor.storage).key.size();
  }
  return seen == SIZE_MAX ? 1 : 0;
}
