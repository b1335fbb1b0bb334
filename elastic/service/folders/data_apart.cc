#include "elastic/service/folders/data_apart.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/storage/storage.h"

namespace heddle::elastic {
namespace {

namespace fs = std::filesystem;

bool LiesIn(const fs::path& folder, const fs::path& place) {
  return std::mismatch(folder.begin(), folder.end(), place.begin(), place.end()).first ==
         folder.end();
}

}  // namespace

Status CheckDataApart(const job::JobConfig& job, const std::string& output) {
  const std::string root = job.checkpoint.RootIn(output);
  for (const auto& [what, written] :
       {std::pair("output folder", output), {"folder of checkpoints", root}}) {
    std::error_code error;
    if (checkpoint::IsUrl(written)) {
      continue;
    }
    const fs::path place = fs::weakly_canonical(fs::absolute(written, error), error);
    if (error) {
      return ErrnoError(error.value(), "look at " + written);
    }
    for (const std::string& data : job::DatasetOptions(job).paths) {
      const fs::path folder = fs::canonical(data, error);  // Missing data is reported elsewhere.
      if (!error && fs::is_directory(folder, error) && LiesIn(folder, place)) {
        return InvalidArgumentError(
            "{} {} lies in the data folder {}, and the run would read what it writes: choose "
            "another one",
            what, written, data);
      }
    }
  }
  return Status::Ok();
}

}  // namespace heddle::elastic
