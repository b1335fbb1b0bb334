// RDMA, as others know it.
#include "comm/cost/transport_traits.h"

namespace heddle::comm {
namespace {

const DeclaredTransport kDeclared(
    {.name = "verbs",
     .title = "RDMA",
     .rank = 20,
     .optional = true,
     .options = {{.name = "devices",
                  .flag = "rdma",
                  .help = "RDMA devices and ports to use, as `heddle links` calls them: "
                          "mlx5_0,mlx5_1/2 [all that are active]"}}});

}  // namespace
}  // namespace heddle::comm
