// Whether an RDMA device registers memory of other devices. The device says no (rxe, siw), or a
// stand-in for the library's call answers as others would.
#include <cerrno>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/transport/verbs/rdma_ports.h"
#include "comm/transport/verbs/verbs_device.h"
#include "tests/comm/cluster.h"

namespace {
int g_error = 0;  // Of the call; 0: the library answers.
}  // namespace

// In the place of the library's.
extern "C" ibv_mr* ibv_reg_dmabuf_mr(
    ibv_pd* domain, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  if (g_error != 0) {
    errno = g_error;
    return nullptr;
  }
  const auto library =
      reinterpret_cast<decltype(&ibv_reg_dmabuf_mr)>(::dlsym(RTLD_NEXT, "ibv_reg_dmabuf_mr"));
  return library(domain, offset, length, iova, fd, access);
}

namespace heddle::comm {
namespace {

using ::testing::HasSubstr;

class VerbsDmaBufTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (RdmaDevice().empty()) {
      GTEST_SKIP() << "HEDDLE_TEST_RDMA names no device";
    }
    for (const RdmaPort& port : FindRdmaPorts()) {
      if (IsAmong(port, RdmaDevice())) {
        auto device = VerbsDevice::Open(port);
        ASSERT_TRUE(device.ok()) << device.status().message();
        device_ = *device;
      }
    }
    ASSERT_NE(device_, nullptr);
  }
  void TearDown() override { g_error = 0; }

  std::shared_ptr<VerbsDevice> device_;
};

TEST_F(VerbsDmaBufTest, ASoftwareDeviceSaysThatItRegistersNone) {
  const Status status = device_->CheckDmaBuf();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("ibv_reg_dmabuf_mr: "));
}

TEST_F(VerbsDmaBufTest, OnlyADeviceThatLooksForTheDescriptorRegistersIt) {
  g_error = EBADF;
  EXPECT_TRUE(device_->CheckDmaBuf().ok());
  for (const int error : {EOPNOTSUPP, ENOSYS, EPROTONOSUPPORT, EINVAL, ENOMEM}) {
    g_error = error;
    EXPECT_EQ(device_->CheckDmaBuf().code(), StatusCode::kUnavailable) << error;
  }
}

}  // namespace
}  // namespace heddle::comm
