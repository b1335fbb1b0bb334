#include "checkpoint/formats/pytorch/pickle_globals.h"

#include <array>

#include "checkpoint/formats/pytorch/pytorch_types.h"

namespace heddle::checkpoint {

std::optional<PickleGlobal> FindPickleGlobal(std::string_view module, std::string_view name) {
  struct Known {
    std::string_view module;
    std::string_view name;
    PickleGlobal global;
  };
  static constexpr std::array kKnown = {
      Known{"collections", "OrderedDict", PickleGlobal::kOrderedDict},
      Known{"argparse", "Namespace", PickleGlobal::kNamespace},
      Known{"torch", "Size", PickleGlobal::kSize},
      Known{"torch", "device", PickleGlobal::kDevice},
      Known{"torch._utils", "_rebuild_tensor", PickleGlobal::kRebuildTensor},
      Known{"torch._utils", "_rebuild_tensor_v2", PickleGlobal::kRebuildTensorV2},
      Known{"torch._utils", "_rebuild_tensor_v3", PickleGlobal::kRebuildTensorV3},
      Known{"torch._utils", "_rebuild_parameter", PickleGlobal::kRebuildParameter},
      Known{"torch._utils", "_rebuild_parameter_with_state",
            PickleGlobal::kRebuildParameterWithState},
  };
  for (const Known& known : kKnown) {
    if (known.module == module && known.name == name) {
      return known.global;
    }
  }
  if ((module == "torch" || module == "torch.storage") && FindPytorchStorage(name) != nullptr) {
    return PickleGlobal::kStorage;
  }
  if (module == "torch" && FindPytorchType(name) != nullptr) {
    return PickleGlobal::kElementType;
  }
  return std::nullopt;
}

}  // namespace heddle::checkpoint
