/// \file
/// The Communicator that Endpoint::Connect returns: point-to-point operations by the group,
/// collectives on top.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/group/group.h"

namespace heddle::comm {

/// Makes the communicator of a group that has been formed.
std::unique_ptr<Communicator> MakeCommunicator(std::shared_ptr<Group> group);

}  // namespace heddle::comm
