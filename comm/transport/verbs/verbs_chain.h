/// \file
/// Send requests of a queue pair, handed to the device in one call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>

namespace heddle::comm {

/// Requests that are not posted yet. They point to each other: neither copied nor moved.
class VerbsChain {
 public:
  VerbsChain() = default;
  VerbsChain(const VerbsChain&) = delete;
  VerbsChain& operator=(const VerbsChain&) = delete;

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ + 2 > requests_.size(); }
  ibv_send_wr* first() { return requests_.data(); }
  void Clear() { count_ = 0; }
  ibv_send_wr& Add(const void* data, size_t bytes, uint32_t key) {
    ibv_sge& part = parts_[count_];
    part.addr = reinterpret_cast<uint64_t>(data);
    part.length = static_cast<uint32_t>(bytes);
    part.lkey = key;
    ibv_send_wr& request = requests_[count_];
    request = {};
    request.sg_list = &part;
    request.num_sge = 1;
    if (count_ > 0) {
      requests_[count_ - 1].next = &request;
    }
    ++count_;
    return request;
  }

 private:
  std::array<ibv_send_wr, 32> requests_;
  std::array<ibv_sge, 32> parts_;
  size_t count_ = 0;
};

}  // namespace heddle::comm
