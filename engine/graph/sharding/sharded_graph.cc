#include "engine/graph/sharding/sharded_graph.h"

namespace heddle::graph {

std::string_view FormName(ExchangeForm form) {
  switch (form) {
    case ExchangeForm::kSum:
      return "sum";
    case ExchangeForm::kMax:
      return "max";
    case ExchangeForm::kScatter:
      return "scatter";
    case ExchangeForm::kGather:
      return "gather";
    case ExchangeForm::kSlice:
      return "slice";
    case ExchangeForm::kFill:
      return "fill";
  }
  return "";
}

}  // namespace heddle::graph
