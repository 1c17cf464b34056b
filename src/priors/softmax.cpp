// softmax: p_t(i) ~ exp(q_t.k_i / sqrt(K)), the prior of attention.
#include <ATen/ATen.h>

#include "fem/ops/softmax_read.h"
#include "ops/softmax_read/visibility.h"
#include "priors/keys_and_values.h"
#include "priors/prior.h"
#include "priors/query_key.h"

namespace fem {
namespace {

// Torch's attention on [v, exp(beta v)]: both are mixed by the same p in one call.
Read sdpa_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& beta, const SoftmaxReadOptions& options) {
  const at::Tensor streams = (beta ? at::cat({value, at::exp(*beta * value)}, -1) : value).transpose(1, 2);
  const bool all_or_triangle = !options.window && !options.key_mask && !options.cu_seqlens &&
                               (!options.causal || query.sym_size(1) == key.sym_size(1));
  at::Tensor mixed, empty;
  if (all_or_triangle) {
    mixed =
        at::scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), streams, {}, 0.0, options.causal);
  } else {
    const at::Tensor visible = visibility(query, key, options);
    empty = visible.any(-1, true).logical_not();
    // A query that sees nothing is let see everything and its result dropped: no NaN in either direction.
    mixed = at::scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), streams,
                                             visible.logical_or(empty));
  }
  const auto stream = [&](int64_t index, double at_empty) {
    const at::Tensor part = mixed.narrow_symint(-1, index * value.sym_size(3), value.sym_size(3));
    return (empty.defined() ? part.masked_fill(empty, at_empty) : part).transpose(1, 2);
  };
  return {stream(0, 0.0), beta ? stream(1, 1.0).log() / *beta : at::Tensor()};
}

class SoftmaxPrior final : public Prior {
 public:
  size_t linear_layers(const MixerOptions&) const override { return 2; }

  std::vector<ParameterSpec> parameters(const MixerOptions& options, const MixerSizes& sizes) const override {
    return declare_query_and_key(options, sizes);
  }

  std::vector<int64_t> leading_widths(const MixerOptions&, const MixerSizes& sizes) const override {
    return {sizes.key, sizes.key};
  }

  Memory memory(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) const override {
    Memory memory = memory_of_keys_and_values(options.n_head, sizes.head_key, sizes.head_value, values);
    memory.window = options.window;
    return memory;
  }

  Read read(const PriorCall& call) const override {
    const MixerOptions& options = call.options;
    const auto [query, key] = query_and_key(call);
    KeysAndValues seen{key, call.value, call.batch.mask};
    if (call.state) seen = remember(call.state->caches, seen, options.window);

    SoftmaxReadOptions visible;
    visible.causal = options.causal;
    visible.window = options.window;
    visible.key_mask = seen.mask;
    visible.cu_seqlens = call.batch.cu_seqlens;
    switch (options.softmax_backend) {
      case SoftmaxBackend::kReference:
        return softmax_read_definition(query, seen.key, seen.value, call.beta, visible);
      case SoftmaxBackend::kSdpa:
        return sdpa_read(query, seen.key, seen.value, call.beta, visible);
      case SoftmaxBackend::kAuto:
      case SoftmaxBackend::kFused:
        break;
    }
    return softmax_read(query, seen.key, seen.value, call.beta, visible);
  }
};

}  // namespace

const Prior& softmax_prior() {
  static const SoftmaxPrior prior;
  return prior;
}

}  // namespace fem
