// softmax: p_t(i) ~ exp(q_t.k_i / sqrt(K)), the prior of attention.
#include <ATen/ATen.h>

#include "fem/ops/softmax_read.h"
#include "priors/chosen.h"
#include "priors/keys_and_values.h"
#include "priors/query_key.h"

namespace fem {
namespace {

// ALiBi: 2^(-8 h / H) for h = 1 ... H.
at::Tensor alibi_slopes(int64_t heads, const at::TensorOptions& options) {
  return at::exp2(at::arange(1, heads + 1, at::kDouble) * (-8.0 / static_cast<double>(heads))).to(options);
}

class SoftmaxPrior final : public Prior {
 public:
  std::vector<Part> parts(const MixerOptions& options, const MixerSizes& sizes) const override {
    return query_and_key_parts(options, sizes);
  }

  Memory memory(const MixerOptions& options, const MixerSizes& sizes, at::ScalarType values) const override {
    Memory memory =
        memory_of_keys_and_values({options.n_head, sizes.head_key}, {options.n_head, sizes.head_value}, values);
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
    if (options.use_alibi) visible.slopes = alibi_slopes(options.n_head, query.options());
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

  at::Tensor log_weights(const PriorCall& call, const at::Tensor& chosen) const override {
    at::Tensor scores =
        chosen_products(query_and_key(call), chosen) / std::sqrt(static_cast<double>(call.sizes.head_key));
    if (call.options.use_alibi) {
      const at::Tensor distance = (chosen.unsqueeze(-1) - at::arange(scores.size(-1), chosen.options())).abs();
      const at::Tensor slopes = alibi_slopes(call.options.n_head, scores.options());
      scores = scores - slopes.unsqueeze(-1) * distance.unsqueeze(1);  // [N, H, T]
    }
    return scores.unsqueeze(3);
  }
};

}  // namespace

const Prior& softmax_prior() {
  static const SoftmaxPrior prior;
  return prior;
}

}  // namespace fem
