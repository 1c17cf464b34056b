#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "parallel/process_group.h"

namespace fem {

// The gradients of a model as views of a few flat buckets. While backward runs, each bucket is summed over all ranks as
// soon as its last gradient is there; every rank starts them in the same order.
class Gradients {
 public:
  Gradients(std::vector<at::Tensor> parameters, std::shared_ptr<ProcessGroup> group, int64_t bucket_bytes = 4 << 20);
  ~Gradients();

  void zero();                     // before the first backward of a step
  void reduce_in_next_backward();  // before the last backward of a step
  void finish();                   // after it: waits until every gradient is the sum over all ranks

  const std::vector<at::Tensor>& views() const;  // one for each parameter, in their order

 private:
  struct Buckets;
  std::shared_ptr<Buckets> buckets_;
};

}  // namespace fem
