#include "elastic/worker/measure/kept_profile.h"

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace heddle::elastic {

Result<KeptProfile> GetProfile(KeptFiles& files,
                               const ProfileKey& key,
                               const std::function<Result<program::WorkerProfile>()>& measure) {
  std::set<std::string> signatures;
  for (const program::ProfiledWork::Part& part : key.work->parts) {
    signatures.insert(part.signature);
  }
  std::string text = fmt::format("{}\n{}\n", key.emulated, key.threads);
  for (const auto& [part, value] : key.arithmetic) {
    text += part + " " + value + "\n";
  }
  for (const std::string& signature : signatures) {
    text += signature + "\n";
  }
  const auto check = [&](std::string_view json) -> Status {
    HEDDLE_ASSIGN_OR_RETURN(const program::WorkerProfile profile, program::ProfileFromJson(json));
    for (const std::string& signature : signatures) {
      if (!profile.seconds.contains(signature)) {
        return DataLossError("lacks {}", signature);
      }
    }
    return Status::Ok();
  };
  HEDDLE_ASSIGN_OR_RETURN(
      const KeptText kept, files.Get("profile", text, check, [&]() -> Result<std::string> {
        HEDDLE_ASSIGN_OR_RETURN(const program::WorkerProfile profile, measure());
        return program::ProfileToJson(profile);
      }));
  HEDDLE_ASSIGN_OR_RETURN(program::WorkerProfile profile, program::ProfileFromJson(kept.text));
  return KeptProfile{.profile = std::move(profile), .measured_at = kept.measured_at};
}

}  // namespace heddle::elastic
