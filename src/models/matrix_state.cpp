// In chunks of 64 tokens (docs/decisions/0029). Within a chunk, with g_t the sum of log a up to t, S the state before
// it and D_ti = exp(g_t - g_i) for i <= t:
//   o_t = exp(g_t) q_t S + sum_{i<=t} D_ti (q_t.k_i) u_i          S' = exp(g_C) S + sum_i exp(g_C - g_i) k_i u_i^T
// Without the delta rule u = v. With it u_t = b_t (v_t - exp(g_t) k_t S - sum_{i<t} D_ti (k_t.k_i) u_i): a triangular
// system of the chunk alone, solved for all chunks at once before S is known.
#include "models/matrix_state.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <cmath>

#include "fem/language_model.h"
#include "fem/ops/rms_norm.h"
#include "mixer/streaming.h"
#include "priors/decay.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr int64_t kChunk = 64;
constexpr const char* kMatrix = "matrix";
constexpr double kSquaredLengthFloor = 1e-6;  // added, so that zeros have a length

// Tokens [B, T, H, ...] as chunks [B, H, N, C, ...], filled up with zeros, which add nothing.
class Chunks {
 public:
  explicit Chunks(const at::Tensor& value) : length_(value.sym_size(1)) {
    if (length_.sym_gt(kChunk).guard_bool(__FILE__, __LINE__))
      count = ((length_ + kChunk - 1) / kChunk).guard_int(__FILE__, __LINE__);
  }

  at::Tensor split(const at::Tensor& x) const {
    const at::Tensor heads = x.transpose(1, 2);
    if (count == 1) return heads.unsqueeze(2).contiguous();
    std::vector<c10::SymInt> more(2 * (x.dim() - 3) + 2, 0);
    more.back() = count * kChunk - length_;
    return at::constant_pad_nd_symint(heads, more).unflatten(2, {count, kChunk});
  }

  at::Tensor join(const at::Tensor& x) const {
    const at::Tensor heads = x.flatten(2, 3);
    return (count == 1 ? heads : heads.slice_symint(2, 0, length_)).transpose(1, 2);
  }

  int64_t count = 1;

 private:
  const c10::SymInt length_;
};

// What is left of the past within a chunk.
struct Decays {
  at::Tensor between;      // D [.., N, C, C]; undefined: 1 from a token to all that follow
  at::Tensor from_before;  // [.., N, C] exp(g_t), of what was before the chunk; undefined: 1
};

Decays decays_of(const at::Tensor& log_decay, const std::optional<at::Tensor>& restart, const Chunks& chunks,
                 const at::Tensor& like) {
  if (!log_decay.defined() && !restart) return {};
  at::Tensor sequence;  // [1, 1, N, C] restarts in the chunk up to a token
  if (restart) sequence = chunks.split(restart->unsqueeze(-1)).cumsum(-1);
  const at::Tensor g =
      log_decay.defined() ? chunks.split(log_decay).cumsum(-1) : at::zeros_like(sequence, like.options());
  const c10::SymInt length = g.sym_size(-1);
  at::Tensor unseen = at::ones_symint({length, length}, g.options().dtype(at::kBool)).triu(1);
  if (restart) unseen = unseen.logical_or(sequence.unsqueeze(-1) != sequence.unsqueeze(-2));
  // Before exp: what lies ahead may be of any size. Added, for all heads at once, it has no gradient to take back.
  const at::Tensor ahead = at::zeros_like(unseen, g.options()).masked_fill(unseen, -INFINITY);
  Decays decays{(g.unsqueeze(-1) - g.unsqueeze(-2) + ahead).exp(), g.exp()};
  if (restart) decays.from_before = decays.from_before.masked_fill(sequence != 0, 0);
  return decays;
}

// Undefined is 1.
at::Tensor times(const at::Tensor& x, const at::Tensor& factor) {
  return x.defined() && factor.defined() ? x * factor : x;
}
at::Tensor rows_times(const at::Tensor& x, const at::Tensor& factor) {
  return factor.defined() ? x * factor.unsqueeze(-1) : x;
}

// The chunks [B, H, N, C, *] and what they are made into.
struct Chunked {
  at::Tensor query, key, value, strength;
  Decays decays;

  // u where the state before each chunk is 0, and what that state takes off: u = own - taken S.
  struct Writes {
    at::Tensor own, taken;
  };
  Writes writes(bool after_state) const {
    if (!strength.defined()) return {value, {}};
    const at::Tensor weighted = rows_times(key, strength);  // keys are narrower than the system
    const at::Tensor system = times(at::matmul(weighted, key.transpose(-2, -1)), decays.between);
    const at::Tensor right = after_state ? at::cat({value, rows_times(key, decays.from_before)}, -1) : value;
    // Only what is below the diagonal is read.
    const at::Tensor solved = at::linalg_solve_triangular(system, rows_times(right, strength), /*upper=*/false,
                                                          /*left=*/true, /*unitriangular=*/true);
    if (!after_state) return {solved, {}};
    return {solved.slice_symint(-1, 0, value.sym_size(-1)), solved.slice_symint(-1, value.sym_size(-1))};
  }

  at::Tensor scores() const {
    const at::Tensor products = at::matmul(query, key.transpose(-2, -1));
    return decays.between.defined() ? products * decays.between : products.tril();
  }

  // From chunk to chunk; state [B, H, K, V] is that before the first, and afterwards that after the last.
  at::Tensor read(at::Tensor& state) const {
    const Writes all = writes(/*after_state=*/true);
    const at::Tensor to_end = decays.between.defined() ? decays.between.select(-2, -1) : at::Tensor();
    const std::vector<at::Tensor> keys = rows_times(key, to_end).transpose(-2, -1).unbind(2), own = all.own.unbind(2);
    std::vector<at::Tensor> taken, kept, before, written;
    if (all.taken.defined()) taken = all.taken.unbind(2);
    if (decays.from_before.defined()) kept = decays.from_before.select(-1, -1).unsqueeze(-1).unsqueeze(-1).unbind(2);
    for (size_t n = 0; n < own.size(); ++n) {
      before.push_back(state);
      written.push_back(taken.empty() ? own[n] : own[n] - at::matmul(taken[n], state));
      state = times(state, kept.empty() ? at::Tensor() : kept[n]) + at::matmul(keys[n], written.back());
    }
    return at::matmul(scores(), at::stack(written, 2)) +
           at::matmul(rows_times(query, decays.from_before), at::stack(before, 2));
  }
};

}  // namespace

at::Tensor read_matrix_state(const MatrixInputs& in, const CausalTokens& tokens, MixerState* state) {
  // Products of a recurrence are not rounded to autocast's dtype.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto dtype = at::toOpMathType(in.value.scalar_type());
  if (in.value.sym_size(1).sym_eq(0).guard_bool(__FILE__, __LINE__)) return in.value.to(dtype);
  const Chunks chunks(in.value);
  const auto wide = [&](const at::Tensor& x) { return x.defined() ? x.to(dtype) : x; };
  at::Tensor key = wide(in.key), log_decay = wide(in.log_decay);
  if (state && tokens.real) {  // behind the real tokens nothing may happen to a state; without one nobody looks there
    const at::Tensor real = tokens.real->unsqueeze(-1).to(dtype);
    key = key * real.unsqueeze(-1);
    log_decay = times(log_decay, real);
  }
  Chunked c{chunks.split(wide(in.query)), chunks.split(key), chunks.split(wide(in.value))};
  if (in.strength.defined()) c.strength = chunks.split(wide(in.strength));
  c.decays = decays_of(log_decay, tokens.restart, chunks, c.value);
  if (!state && chunks.count == 1) return chunks.join(at::matmul(c.scores(), c.writes(/*after_state=*/false).own));

  at::Tensor matrix = state ? state->accumulators[kMatrix] : at::Tensor();
  if (!matrix.defined())
    matrix = at::zeros_symint({c.value.sym_size(0), c.value.sym_size(1), c.key.sym_size(-1), c.value.sym_size(-1)},
                              c.value.options());
  const at::Tensor read = c.read(matrix);
  if (state) state->accumulators[kMatrix] = matrix;
  return chunks.join(read);
}

at::Tensor log_decay_of(const at::Tensor& step, const at::Tensor& A_log) {
  return -(A_log.to(step.scalar_type()).exp() * step);
}

at::Tensor step_of(const at::Tensor& logit, const at::Tensor& bias) {
  const auto dtype = at::toOpMathType(logit.scalar_type());
  return at::softplus(logit.to(dtype) + bias.to(dtype));
}

MatrixInputs delta_inputs(const at::Tensor& convolved, int64_t heads, int64_t key_width) {
  const int64_t keys = 2 * heads * key_width;
  const auto width = static_cast<double>(key_width);  // the mean of squares is their sum over it
  const at::Tensor scale = at::full({key_width}, 1 / std::sqrt(width), convolved.options());
  const at::Tensor both =
      rms_norm(convolved.slice(-1, 0, keys).unflatten(-1, {2 * heads, key_width}), scale, kSquaredLengthFloor / width);
  MatrixInputs in;
  in.query = both.narrow(2, 0, heads);
  in.key = both.narrow(2, heads, heads);
  in.value = convolved.slice(-1, keys).unflatten(-1, {heads, -1});
  return in;
}

ParameterSpec convolution_spec(int64_t channels) {
  // The deviation of torch's own convolutions, which start uniform up to 1 / sqrt(width).
  const double deviation = 1 / std::sqrt(3.0 * kConvolutionWidth);
  return {"convolution.weight", {channels, kConvolutionWidth}, ParameterSpec::Init::kNormal, deviation};
}

ParameterSpec decay_rate_spec(int64_t heads) {
  const auto values = [heads] {
    std::vector<double> rates = geometric(1, 16, heads);
    for (double& rate : rates) rate = std::log(rate);
    return rates;
  };
  return {"A_log", {heads}, ParameterSpec::Init::kValues, 0, values};
}

ParameterSpec step_bias_spec(std::string name, int64_t heads) {
  const auto values = [heads] {
    std::vector<double> steps = geometric(0.001, 0.1, heads);
    for (double& step : steps) step = inverse_softplus(step);
    return steps;
  };
  return {std::move(name), {heads}, ParameterSpec::Init::kValues, 0, values};
}

void match_attention(const BackboneOptions& options, int64_t& width,
                     const std::function<std::vector<ParameterSpec>()>& parameters) {
  const auto count = [&](int64_t w) {
    width = w;
    return static_cast<double>(parameter_count(parameters()));
  };
  const double none = count(0), wanted = 4.0 * static_cast<double>(options.n_embd * options.n_embd);
  width = std::max<int64_t>(1, std::llround((wanted - none) / (count(1) - none)));
}

void check_recurrent(const BackboneOptions& options, const char* who, std::set<std::string> taken) {
  taken.insert("causal");
  check_taken(options.mixer, who, taken);
  FEM_CHECK(options.mixer.causal, who,
            ": expected mixer.causal = true, got false; its state is made of earlier tokens ",
            "alone, so it cannot be an encoder: set block_mixer to \"fem\" or \"attention\"");
}

Mix causal_mix(const char* who, std::vector<int64_t> matrix, int64_t channels, CausalMix mix) {
  return [=](const at::Tensor& x, const Batch& batch, MixerState* state, bool /*training*/) {
    const auto layer = [&](MixerState* next) {
      const CausalTokens tokens(x, batch);
      return tokens.as_they_were(mix(tokens.real_first(x), tokens, next));
    };
    if (!state) return layer(nullptr);
    Memory memory;
    memory.layer = who;
    memory.accumulators = {{kMatrix, matrix, at::toOpMathType(x.scalar_type())}};
    if (channels) memory.accumulators.push_back(convolution_memory(channels, kConvolutionWidth, x.scalar_type()));
    return stream(who, x, batch, memory, *state, [&](MixerState& next) { return layer(&next); });
  };
}

}  // namespace fem
