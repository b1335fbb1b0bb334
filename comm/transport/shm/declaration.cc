// Shared memory, as others know it.
#include "comm/cost/transport_traits.h"

namespace heddle::comm {
namespace {

// The machine's own kernel keeps it from everybody else.
const DeclaredTransport kDeclared({.name = "shm",
                                   .title = "shared memory",
                                   .rank = 10,
                                   .within_host = true,
                                   .encrypts = true,
                                   .passes_descriptors = true});

}  // namespace
}  // namespace heddle::comm
