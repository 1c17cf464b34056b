#include <algorithm>
#include <cmath>

#include "fem/options.h"
#include "priors/prior.h"
#include "util/check.h"

namespace fem {
namespace {

bool is_positive(double value) { return value > 0 && std::isfinite(value); }

void check(const MixerOptions& o) {
  FEM_CHECK(o.n_embd >= 1, "mixer options: expected n_embd of at least 1, got ", o.n_embd);
  FEM_CHECK(o.n_head >= 1, "mixer options: expected n_head of at least 1, got ", o.n_head);
  for (const auto& [name, width] : {std::pair{"n_embd", std::optional(o.n_embd)},
                                    {"n_head", o.n_head},
                                    {"fem_dim", o.fem_dim},
                                    {"qk_dim", o.qk_dim},
                                    {"conv_hidden", o.conv_hidden},
                                    {"ssm_rank", o.ssm_rank}})
    FEM_CHECK(width.value_or(1) <= kLargestWidth, "mixer options: expected ", name, " of at most ", kLargestWidth,
              ", got ", *width);
  FEM_CHECK(o.window.value_or(1) <= kLargestWindow, "mixer options: expected a window of at most ", kLargestWindow,
            " tokens, got ", *o.window, "; leave it unset for no window");
  FEM_CHECK(o.n_embd % o.n_head == 0,
            "mixer options: expected n_embd to be a multiple of n_head, got n_embd=", o.n_embd,
            " and n_head=", o.n_head);
  FEM_CHECK(!o.fem_dim || *o.fem_dim >= 1, "mixer options: expected fem_dim of at least 1, got ", *o.fem_dim,
            "; leave it unset to let fem_ratio decide");
  FEM_CHECK(is_positive(o.fem_ratio), "mixer options: expected fem_ratio > 0, got ", o.fem_ratio);
  FEM_CHECK(!o.qk_dim || *o.qk_dim >= 1, "mixer options: expected qk_dim of at least 1, got ", *o.qk_dim,
            "; leave it unset to let p_t_to_fem_ratio decide");
  FEM_CHECK(is_positive(o.p_t_to_fem_ratio), "mixer options: expected p_t_to_fem_ratio > 0, got ", o.p_t_to_fem_ratio);
  FEM_CHECK(o.dropout >= 0 && o.dropout < 1, "mixer options: expected dropout in [0, 1), got ", o.dropout);
  FEM_CHECK(std::isfinite(o.beta_max_init), "mixer options: expected a finite beta_max_init, got ", o.beta_max_init);
  FEM_CHECK(o.value_logexp_cap > 0 && o.value_logexp_cap <= 40,
            "mixer options: expected value_logexp_cap in (0, 40], got ", o.value_logexp_cap,
            "; beyond 40 exp(beta v) and its gradient leave float32's range");
  FEM_CHECK(is_positive(o.eps), "mixer options: expected eps > 0, got ", o.eps);
  FEM_CHECK(is_positive(o.rope_theta), "mixer options: expected rope_theta > 0, got ", o.rope_theta);
  FEM_CHECK(!o.conv_hidden || *o.conv_hidden >= 1, "mixer options: expected conv_hidden of at least 1, got ",
            *o.conv_hidden, "; set use_conv to false for no conditioner");
  FEM_CHECK(!o.conv_bidirectional || !o.causal,
            "mixer options: conv_bidirectional lets tokens see later ones: expected "
            "causal to be false with it, got true");
  FEM_CHECK(!o.conv_bidirectional || !o.conv_hidden || *o.conv_hidden % 2 == 0,
            "mixer options: expected an even conv_hidden with "
            "conv_bidirectional, one half for each direction, got ",
            *o.conv_hidden);
  FEM_CHECK(
      o.use_inner_gate || o.has_free_energy(),
      "mixer options: without use_inner_gate the free energy is read, but use_lse and use_temperature are off and "
      "there is none; set one of the three to true");
  FEM_CHECK(o.ssm_rank >= 1, "mixer options: expected ssm_rank of at least 1, got ", o.ssm_rank);
  FEM_CHECK(!o.window || *o.window >= 1, "mixer options: expected a window of at least 1 token, got ", *o.window,
            "; leave it unset for no window");
  const bool softmax = o.prior_type == PriorType::kSoftmax, mamba = o.prior_type == PriorType::kMamba;
  FEM_CHECK(!o.use_alibi || softmax,
            "mixer options: use_alibi belongs to prior_type softmax, whose scores it changes; ", "expected it off for ",
            spelled(o.prior_type));
  FEM_CHECK(!o.window || softmax, "mixer options: a window belongs to prior_type softmax; the other priors forget by ",
            "decay. Expected it unset, got ", *o.window);
  FEM_CHECK(
      softmax || o.softmax_backend == SoftmaxBackend::kAuto,
      "mixer options: softmax_backend chooses how prior_type softmax is computed: expected auto with another prior");
  FEM_CHECK(!o.mamba_interact || mamba, "mixer options: mamba_interact needs prior_type mamba");
}

// The multiple of step nearest to width, at least one; exact ties go down.
int64_t nearest_multiple(int64_t width, int64_t step) {
  const int64_t below = width / step * step;
  return std::max(step, width - below > step / 2 ? below + step : below);
}

}  // namespace

MixerSizes sizes_of(const MixerOptions& options) {
  check(options);
  const int64_t heads = options.n_head;
  // llrint rounds halves to even, as the authors' Python does.
  const auto share = [](const char* name, double ratio, int64_t width) {
    const double wanted = ratio * static_cast<double>(width);
    FEM_CHECK(wanted <= kLargestWidth, "mixer options: expected ", name, " to give a width of at most ", kLargestWidth,
              ", got ", wanted);
    return std::llrint(wanted);
  };

  MixerSizes sizes;
  sizes.value =
      nearest_multiple(options.fem_dim.value_or(share("fem_ratio", options.fem_ratio, options.n_embd)), 4 * heads);
  sizes.head_value = sizes.value / heads;
  const int64_t key_budget = nearest_multiple(
      options.qk_dim.value_or(share("p_t_to_fem_ratio", options.p_t_to_fem_ratio / 2, sizes.value)), 2 * heads);
  sizes.head_key = prior_of(options.prior_type).head_key(options, key_budget / heads, sizes.head_value);
  sizes.key = heads * sizes.head_key;
  const int64_t unset =
      rules_of(options.dialect).narrow ? nearest_multiple(std::llrint(static_cast<double>(sizes.value) / 16), 4) : 64;
  sizes.conditioner = options.conv_hidden.value_or(unset);
  return sizes;
}

}  // namespace fem
