#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fem {

// The order in which a number of items is read over and over: every epoch reads each once, in an order of its own. A
// pure function of the seed and the row, so that a run can go on from any row and be shared by any number of processes.
class EpochOrder {
 public:
  EpochOrder(int64_t items, uint64_t seed) : items_(items), seed_(seed) {}

  struct Place {
    int64_t item;
    uint64_t epoch_seed;  // for what else differs from epoch to epoch
  };
  Place of(int64_t row) const;

 private:
  int64_t items_;
  uint64_t seed_;
  mutable int64_t epoch_ = -1;  // whose order is in memory
  mutable at::Tensor order_;
};

}  // namespace fem
