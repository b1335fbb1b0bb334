/// \file
/// The Communicator that an Endpoint hands out: point-to-point by the group, collectives on top.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/group/group.h"

namespace heddle::comm {

/// `group` has formed.
std::unique_ptr<Communicator> MakeCommunicator(std::shared_ptr<Group> group);

}  // namespace heddle::comm
