// softmax: p_t(i) ~ exp(q_t.k_i / sqrt(K)), the prior of attention.
#include <ATen/ATen.h>

#include "fem/ops/softmax_read.h"
#include "ops/softmax_read/softmax_read.h"
#include "priors/keys_and_values.h"
#include "priors/query_key.h"

namespace fem {
namespace {

// By torch's attention, as on devices without kernels of ours.
Read attention_read(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const std::optional<at::Tensor>& beta, const SoftmaxReadOptions& options) {
  const auto [mean, free_energy, log_normalizer] = call_attention_read(
      query, key, value, beta, options.scale, options.causal, options.window, options.key_mask, options.cu_seqlens);
  return {mean, beta ? free_energy.to(mean.scalar_type()) : at::Tensor()};
}

class SoftmaxPrior final : public Prior {
 public:
  std::vector<Part> parts(const MixerOptions& options, const MixerSizes& sizes) const override {
    return query_and_key_parts(options, sizes);
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
        return attention_read(query, seen.key, seen.value, call.beta, visible);
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
