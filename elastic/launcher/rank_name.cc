#include "elastic/launcher/rank_name.h"

#include <vector>

namespace heddle::elastic {

Result<std::string> NameOfRank(const std::string& names, const std::optional<Launched>& launched) {
  if (names.empty()) {
    return launched && launched->size != 1 ? fmt::format("worker-{}", launched->rank)
                                           : std::string();
  }
  std::vector<std::string> list(1);
  for (const char c : names) {
    if (c == ',') {
      list.emplace_back();
    } else {
      list.back() += c;
    }
  }
  if (list.size() == 1) {
    return names;
  }
  if (!launched) {
    return InvalidArgumentError(
        "a name a rank ('{}'), but neither mpirun nor srun started this worker", names);
  }
  if (static_cast<size_t>(launched->rank) >= list.size()) {
    return InvalidArgumentError("{} names ('{}') and no one for rank {}", list.size(), names,
                                launched->rank);
  }
  const std::string& name = list[static_cast<size_t>(launched->rank)];
  if (name.empty()) {
    return InvalidArgumentError("an empty name for rank {} ('{}')", launched->rank, names);
  }
  return name;
}

}  // namespace heddle::elastic
