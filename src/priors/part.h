// The parts of the layer. One list declares them; their parameters, the joint projection of x and the conditioner's
// slices follow from it.
#pragma once

#include <functional>
#include <variant>
#include <vector>

#include "fem/mixer.h"
#include "nn/linear.h"

namespace fem {

// The authors' name of a part's parameters. The constant itself is the handle: a part is found by its address.
struct PartName {
  constexpr explicit PartName(const char* text) : text(text) {}
  PartName(const PartName&) = delete;
  const char* const text;
};

// Where a part's columns are in the conditioner's output. Those of one place follow one another as in the list.
enum class Conditioned { kNot, kBeforeGates, kGate, kAfterGates };

// How elements start: all alike, or each with its own number, computed when it is asked for.
using Start = std::variant<double, std::function<std::vector<double>()>>;

struct Part {
  enum class Kind { kProjection, kOutput, kParameter };  // a linear layer of x; of what was read; a parameter alone

  const PartName* name;
  Kind kind;
  std::vector<int64_t> shape;  // of its weight; of a linear layer [out, in]
  Conditioned conditioned = Conditioned::kNot;
  bool bias = false;
  Start start = 0.0;      // of the bias; of a parameter alone, itself
  bool added = false;     // the conditioner adds c to it, instead of multiplying it by 1 + c
  bool is_query = false;  // a projection of MixerInput::query
};

inline Part projection(const PartName& name, const MixerOptions& options, int64_t width, Conditioned conditioned,
                       Start bias = 0.0) {
  return {&name, Part::Kind::kProjection, {width, options.n_embd}, conditioned, options.bias, std::move(bias)};
}
inline Part parameter(const PartName& name, std::vector<int64_t> shape, Start start) {
  return {&name, Part::Kind::kParameter, std::move(shape), Conditioned::kNot, false, std::move(start)};
}

std::vector<ParameterSpec> parameters_of(const Part& part);

// A part in one call of the layer.
struct AppliedPart : Part {
  LinearWeights weights;  // of a parameter alone: the weight
  at::Tensor projected;   // the input through it, [B, T, width]; undefined unless it is a linear layer of x
  Modulation modulation;  // undefined: c is 0, or not for it

  // [B, T, H, *], modulated
  at::Tensor by_head(int64_t heads, const AfterModulation& after = {}) const {
    return fem::by_head(projected, heads, modulation, after, worth_recomputing(projected));
  }
};

class AppliedParts {
 public:
  // Of parts with their weights; c: the conditioner's whole output, to be sliced.
  AppliedParts(const MixerInput& in, std::vector<AppliedPart> parts, const Modulation& c = {});

  const AppliedPart& operator[](const PartName& name) const;

 private:
  std::vector<AppliedPart> parts_;
};

}  // namespace fem
