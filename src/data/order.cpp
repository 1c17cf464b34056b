#include "data/order.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "util/check.h"
#include "util/hash.h"

namespace fem {

EpochOrder::Place EpochOrder::of(int64_t row) const {
  FEM_CHECK(row >= 0, "order: expected a row from 0, got ", row);
  const int64_t epoch = row / items_;
  const uint64_t epoch_seed = splitmix64(splitmix64(seed_) + static_cast<uint64_t>(epoch));
  if (epoch != epoch_) {
    order_ = at::randperm(items_, at::detail::createCPUGenerator(epoch_seed), at::kLong);
    epoch_ = epoch;
  }
  return {order_.const_data_ptr<int64_t>()[row % items_], epoch_seed};
}

}  // namespace fem
