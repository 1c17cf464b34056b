#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "fem/ops/rotary.h"

namespace fem {

// p_t(i): attention, linear attention, gated linear attention, attention-free transformer, linear RNN, selective SSM.
enum class PriorType { kSoftmax, kLinear, kGla, kRnnSoftmax, kRnnDecay, kMamba };

// Who computes the softmax read: kAuto and kFused our kernels, kReference the definition, kSdpa torch's attention on
// [v, exp(beta v)].
enum class SoftmaxBackend { kAuto, kFused, kReference, kSdpa };

// The spelling of each enumerator in configurations, on the command line and in Python.
template <typename Enum>
struct Spelling;
template <>
struct Spelling<PriorType> {
  static constexpr std::array values{std::pair{std::string_view("softmax"), PriorType::kSoftmax},
                                     std::pair{std::string_view("linear"), PriorType::kLinear},
                                     std::pair{std::string_view("gla"), PriorType::kGla},
                                     std::pair{std::string_view("rnn_softmax"), PriorType::kRnnSoftmax},
                                     std::pair{std::string_view("rnn_decay"), PriorType::kRnnDecay},
                                     std::pair{std::string_view("mamba"), PriorType::kMamba}};
};
template <>
struct Spelling<SoftmaxBackend> {
  static constexpr std::array values{std::pair{std::string_view("auto"), SoftmaxBackend::kAuto},
                                     std::pair{std::string_view("fused"), SoftmaxBackend::kFused},
                                     std::pair{std::string_view("reference"), SoftmaxBackend::kReference},
                                     std::pair{std::string_view("sdpa"), SoftmaxBackend::kSdpa}};
};
template <>
struct Spelling<Dialect> {
  static constexpr std::array values{std::pair{std::string_view("corrected"), Dialect::kCorrected},
                                     std::pair{std::string_view("reference"), Dialect::kReference},
                                     std::pair{std::string_view("paper"), Dialect::kPaper}};
};

template <typename Enum>
std::string spelled(Enum value) {
  for (const auto& [name, known] : Spelling<Enum>::values)
    if (known == value) return std::string(name);
  return "?";
}

// Of every width below; with it no product of sizes overflows.
inline constexpr int64_t kLargestWidth = 1 << 20;
inline constexpr int64_t kLargestWindow = 1 << 30;  // tokens

// Fields, names and defaults of the authors' configuration, then ours.
struct MixerOptions {
  int64_t n_embd = 0;
  int64_t n_head = 0;
  std::optional<int64_t> fem_dim;
  double fem_ratio = 0.5;
  std::optional<int64_t> qk_dim;
  double p_t_to_fem_ratio = 4.0;
  PriorType prior_type = PriorType::kSoftmax;
  SoftmaxBackend softmax_backend = SoftmaxBackend::kAuto;
  double dropout = 0.0;
  bool causal = true;
  bool bias = true;
  double beta_max_init = 1.8;
  double value_logexp_cap = 40.0;
  double eps = 1e-6;
  bool use_temperature = true;
  bool use_lse = true;
  bool use_outer_gate = true;
  std::optional<bool> use_rope;
  double rope_theta = 10000.0;
  bool use_conv = true;
  std::optional<int64_t> conv_hidden;
  bool conv_norm_first = true;
  bool conv_bidirectional = false;
  int64_t ssm_rank = 16;
  bool mamba_normalize = true;
  Dialect dialect = Dialect::kCorrected;
  bool use_inner_gate = true;
  std::optional<int64_t> window;
  bool mamba_interact = false;
  bool use_alibi = false;

  // Is there a free-energy branch?
  bool has_free_energy() const { return use_lse || use_temperature; }
  // Does a gate choose between mean and free energy? Without one the free energy is what is read, if there is any.
  bool has_inner_gate() const { return has_free_energy() && use_inner_gate; }
  // Are queries and keys rotated? Unset, the logits of rnn_softmax are not, but in the authors' code.
  bool rotates() const {
    return use_rope.value_or(prior_type != PriorType::kRnnSoftmax || dialect == Dialect::kReference);
  }
};

// Calls visit(name, field, help) for every field: the one list behind JSON, the command line and Python.
template <typename Options, typename Visitor>
void visit_mixer_options(Options& o, Visitor&& visit) {
  visit("n_embd", o.n_embd, "model width D");
  visit("n_head", o.n_head, "heads H");
  visit("fem_dim", o.fem_dim, "value width E; unset: fem_ratio decides. Rounded to a multiple of 4 n_head");
  visit("fem_ratio", o.fem_ratio, "value width relative to n_embd");
  visit("qk_dim", o.qk_dim,
        "total query (and key) width; unset: p_t_to_fem_ratio decides. Rounded to a multiple of 2 n_head");
  visit("p_t_to_fem_ratio", o.p_t_to_fem_ratio, "query plus key width relative to the value width");
  visit("prior_type", o.prior_type, "selection prior: softmax, linear, gla, rnn_softmax, rnn_decay or mamba");
  visit("softmax_backend", o.softmax_backend, "who computes the softmax read");
  visit("dropout", o.dropout, "probability of dropping an element of the gated read in training");
  visit("causal", o.causal, "tokens see no later token; off: encoder");
  visit("bias", o.bias, "projections and norms have biases");
  visit("beta_max_init", o.beta_max_init, "initial _beta_param; beta = softplus(_beta_param) + eps");
  visit("value_logexp_cap", o.value_logexp_cap, "values are clipped to |beta v| <= cap, in (0, 40]");
  visit("eps", o.eps, "floor of beta and of the outer gate");
  visit("use_temperature", o.use_temperature, "learned beta; off: beta = 1");
  visit("use_lse", o.use_lse, "free-energy branch even when use_temperature is off");
  visit("use_outer_gate", o.use_outer_gate, "G: outer gate");
  visit("use_rope", o.use_rope,
        "rotary positions on queries and keys; unset: yes, but for rnn_softmax only in dialect reference");
  visit("rope_theta", o.rope_theta, "base of the rotary frequencies");
  visit("use_conv", o.use_conv, "C: time-decay conditioner");
  visit("conv_hidden", o.conv_hidden, "conditioner width; unset: 64, in dialect paper a sixteenth of the value width");
  visit("conv_norm_first", o.conv_norm_first, "LayerNorm before the conditioner");
  visit("conv_bidirectional", o.conv_bidirectional, "conditioner scans both ways (encoder only)");
  visit("ssm_rank", o.ssm_rank, "state size of the mamba prior");
  visit("mamba_normalize", o.mamba_normalize, "mamba prior: normalise its weights");
  visit("dialect", o.dialect,
        "corrected, reference: what the authors' code computes, or paper: its equations as printed");
  visit("use_inner_gate", o.use_inner_gate, "gate between mean and free energy; off: the free energy is read");
  visit("window", o.window, "softmax prior: sees only this many tokens back, itself included");
  visit("mamba_interact", o.mamba_interact, "mamba prior: chooses among the channels of its head as well");
  visit("use_alibi", o.use_alibi, "softmax prior: scores fall with the distance, head h by 2^(-8 h / n_head) a token");
}

// Widths that follow from the options.
struct MixerSizes {
  int64_t value = 0;        // E, all heads
  int64_t head_value = 0;   // V = E / H
  int64_t key = 0;          // H K, all heads
  int64_t head_key = 0;     // K
  int64_t conditioner = 0;  // H_c, both directions
};

// Checks every field and returns the widths; throws one clear sentence otherwise.
MixerSizes sizes_of(const MixerOptions& options);

}  // namespace fem
