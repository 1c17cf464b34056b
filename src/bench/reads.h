// The reads that benchmarks run: one of every prior, and torch's attention as the opponent.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "bench/paired.h"
#include "bench/shapes.h"
#include "bench/work.h"
#include "fem/options.h"

namespace fem::bench {

// A read on random inputs of a shape, as its layer would give them.
struct ReadUnderTest {
  std::vector<at::Tensor> inputs;                 // all of which have gradients
  std::function<std::vector<at::Tensor>()> read;  // differentiable outputs
};

Head read_head(const Shape& shape);  // D / H wide keys, values half as wide: of the free energy and the mean each
ReadUnderTest read_of(PriorType prior, const Shape& shape);
ReadUnderTest attention_of(const Shape& shape);  // torch's fused attention of the same total width

Work forward_of(const ReadUnderTest& side);
Work backward_of(const ReadUnderTest& side);  // the graph is built beforehand and kept: only the backward runs
Work both_of(const ReadUnderTest& side);

}  // namespace fem::bench
