#include "bench/work.h"

#include "fem/mixer.h"

namespace fem::bench {
namespace {

constexpr int64_t kFloat = sizeof(float);

// streams: how wide what is summed is, V or that of [v, e^{beta v}].
Flops softmax_flops(const Shape& s, int64_t key, int64_t streams) {
  const int64_t pairs = s.batch * s.heads * s.length * (s.length + 1) / 2;
  return {2 * pairs * (key + streams), 2 * pairs * (3 * key + 2 * streams)};
}

Flops linear_flops(const Shape& s, int64_t key, int64_t streams) {
  const int64_t product = 2 * s.batch * s.heads * s.length * key * (streams + 1);
  return {2 * product, 5 * product};
}

int64_t elements(const ParameterSpec& parameter) {
  int64_t n = 1;
  for (const int64_t size : parameter.shape) n *= size;
  return n;
}

struct Elements {
  int64_t all = 0, factors = 0;  // factors: of the matrices that every token is multiplied with
};

Elements elements_of(const MixerOptions& options) {
  Elements sum;
  for (const ParameterSpec& parameter : mixer_parameters(options)) {
    sum.all += elements(parameter);
    // A_log is [E, R], but it is decays, not a factor.
    if (parameter.shape.size() == 2 && parameter.name != "A_log") sum.factors += elements(parameter);
  }
  return sum;
}

Elements attention_elements(const Shape& s) { return {4 * s.dim * (s.dim + 1), 4 * s.dim * s.dim}; }

Flops layer_flops(const Elements& weights, const Shape& s, const Flops& read) {
  const int64_t projections = 2 * s.batch * s.length * weights.factors;
  return {projections + read.forward, 2 * projections + read.backward};
}

// The new token alone; what it reads of others is a multiple of what it reads of itself.
Shape one_token(Shape s) {
  s.length = 1;
  return s;
}

Cost step_cost(const Elements& weights, const Shape& s, int64_t read_flops, int64_t past_bytes) {
  return {2 * s.batch * weights.factors + read_flops, kFloat * weights.all + past_bytes};
}

Head head_of(const MixerOptions& options) {
  const MixerSizes sizes = sizes_of(options);
  return {sizes.head_key, sizes.head_value};
}

}  // namespace

Flops read_flops(PriorType prior, const Shape& shape, const Head& head, bool free_energy) {
  const int64_t streams = (free_energy ? 2 : 1) * head.value;
  switch (prior) {
    case PriorType::kSoftmax:
      return softmax_flops(shape, head.key, streams);
    case PriorType::kLinear:
    case PriorType::kGla:
      return linear_flops(shape, head.key, streams);
    default:
      return {};
  }
}

Flops attention_flops(const Shape& shape) {
  const int64_t width = shape.dim / shape.heads;
  return softmax_flops(shape, width, width);
}

Flops mixer_flops(const MixerOptions& options, const Shape& shape) {
  return layer_flops(elements_of(options), shape,
                     read_flops(options.prior_type, shape, head_of(options), options.has_free_energy()));
}

Flops attention_layer_flops(const Shape& shape) {
  return layer_flops(attention_elements(shape), shape, attention_flops(shape));
}

Cost mixer_step_cost(const MixerOptions& options, const Shape& shape, int64_t state_bytes) {
  const int64_t read =
      read_flops(options.prior_type, one_token(shape), head_of(options), options.has_free_energy()).forward;
  const bool keeps_tokens = options.prior_type == PriorType::kSoftmax;
  return step_cost(elements_of(options), shape, keeps_tokens ? (shape.length + 1) * read : read,
                   keeps_tokens ? state_bytes : 2 * state_bytes);
}

Cost attention_step_cost(const Shape& shape, int64_t cache_bytes) {
  const int64_t read = attention_flops(one_token(shape)).forward;
  return step_cost(attention_elements(shape), shape, (shape.length + 1) * read, cache_bytes);
}

}  // namespace fem::bench
