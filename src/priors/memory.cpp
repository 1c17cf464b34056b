#include "priors/memory.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>

#include "util/check.h"

namespace fem {
namespace {

constexpr const char* kRemedy = "; a state belongs to the layer that began it, start from a new one";

// Positions are exact in float64 up to here, and sums of two of them are far from int64's end.
constexpr int64_t kMostTokens = int64_t{1} << 53;

class Checker {
 public:
  Checker(const char* who, const MixerState& state, const Memory& memory, const at::Tensor& x)
      : who_(who), state_(state), memory_(memory), x_(x) {}

  void run() const {
    FEM_CHECK(state_.tokens > 0 && state_.tokens <= kMostTokens, who_,
              ": expected a new state or one that has seen tokens, up to 2^53, got tokens = ", state_.tokens, kRemedy);
    FEM_CHECK(state_.layer == memory_.layer, who_, ": expected a state of the layer (", memory_.layer, "), got one of ",
              state_.layer.empty() ? "no layer" : "the layer (" + state_.layer + ")", kRemedy);
    if (state_.positions.defined()) part({"positions", {}, at::kLong}, state_.positions);
    if (memory_.conditioner) part(*memory_.conditioner, state_.conditioner);
    FEM_CHECK(memory_.conditioner || !state_.conditioner.defined(), who_,
              ": this layer has no conditioner, but the state holds one's h", kRemedy);
    accumulators();
    caches();
  }

 private:
  void part(const MemoryPart& expected, const at::Tensor& got, std::optional<int64_t> tokens = std::nullopt) const {
    FEM_CHECK(got.defined(), who_, ": expected the state to hold ", expected.name, " of the ", state_.tokens,
              " tokens it has seen, got none", kRemedy);
    FEM_CHECK(got.dim() > 0 && got.size(0) == x_.size(0), who_, ": expected x with the state's batch size ",
              got.dim() > 0 ? got.size(0) : 0, ", got ", shape_of(x_), "; start from a new state or use state.select");
    std::vector<int64_t> shape{x_.size(0)};
    if (tokens) shape.push_back(*tokens);
    shape.insert(shape.end(), expected.shape.begin(), expected.shape.end());
    FEM_CHECK(got.sizes() == shape && got.scalar_type() == expected.dtype && got.device() == x_.device(), who_,
              ": expected the state's ", expected.name, " as ", expected.dtype, " ", at::IntArrayRef(shape), " on ",
              x_.device(), ", got ", got.scalar_type(), " ", shape_of(got), " on ", got.device(), kRemedy);
  }

  void accumulators() const {
    for (const MemoryPart& expected : memory_.accumulators) {
      const auto found = state_.accumulators.find(expected.name);
      part(expected, found == state_.accumulators.end() ? at::Tensor() : found->second);
    }
    refuse_others(state_.accumulators, memory_.accumulators);
  }

  void caches() const {
    std::vector<MemoryPart> expected = memory_.caches;
    if (!expected.empty() && state_.positions.defined()) expected.push_back({"visible", {}, at::kBool});
    for (const MemoryPart& cache : expected) {
      const auto found = state_.caches.find(cache.name);
      part(cache, found == state_.caches.end() ? at::Tensor() : found->second.rows(), rows());
    }
    refuse_others(state_.caches, expected);
  }

  // Tokens that the caches hold: all, or with a window at least those that a new token may see.
  int64_t rows() const {
    if (!memory_.window || state_.caches.empty()) return state_.tokens;
    const int64_t held = state_.caches.begin()->second.length();
    return std::clamp(held, std::min(*memory_.window, state_.tokens), state_.tokens);
  }

  template <typename Parts>
  void refuse_others(const Parts& parts, const std::vector<MemoryPart>& known) const {
    for (const auto& [name, got] : parts)
      FEM_CHECK(std::any_of(known.begin(), known.end(), [&, &name = name](const auto& p) { return p.name == name; }),
                who_, ": this layer remembers no ", name, ", but the state holds it", kRemedy);
  }

  const char* who_;
  const MixerState& state_;
  const Memory& memory_;
  const at::Tensor& x_;
};

}  // namespace

std::string rope_words(const MixerOptions& options) {
  if (!options.rotates()) return "no rope";
  char digits[32];
  return "rope " + std::string(digits, std::to_chars(digits, digits + sizeof(digits), options.rope_theta).ptr);
}

void check_continues(const char* who, const MixerState& state, const Memory& memory, const at::Tensor& x,
                     const Batch& batch) {
  FEM_CHECK(!batch.cu_seqlens, who,
            ": a state cannot continue packed sequences; give each a row of the batch and a mask");
  FEM_CHECK(!(at::GradMode::is_enabled() && x.requires_grad()), who,
            ": a state carries no gradients, but x requires them; "
            "call forward(x) to train, or use torch::NoGradGuard or x.detach()");
  if (!state.is_new()) Checker(who, state, memory, x).run();
}

}  // namespace fem
