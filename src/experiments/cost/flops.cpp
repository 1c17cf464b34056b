#include "experiments/cost/flops.h"

#include <cmath>
#include <map>

#include "models/token_mixer.h"
#include "util/check.h"

namespace fem {
namespace {

using bench::Flops;

Flops operator+(const Flops& a, const Flops& b) { return {a.forward + b.forward, a.backward + b.backward}; }

// Matrices that `rows` rows are multiplied with: twice as much in the backward, for both factors.
Flops products(int64_t rows, int64_t elements) { return {2 * rows * elements, 4 * rows * elements}; }

// Every token of a mixer through its matrices and its short convolution, and what it has of other parameters.
struct MixerShapes {
  int64_t of_tokens = 0;
  std::map<std::string, std::vector<int64_t>> shapes;

  int64_t size(const char* name, size_t dimension) const { return shapes.at(name).at(dimension); }
  int64_t elements(const char* name) const { return c10::multiply_integers(shapes.at(name)); }
};

MixerShapes shapes_of(const BackboneOptions& options) {
  MixerShapes of;
  for (const ParameterSpec& spec : token_mixer_of(options.block_mixer).parameters(options, 0)) {
    of.shapes[spec.name] = spec.shape;
    if (spec.decays || spec.name == "convolution.weight") of.of_tokens += of.elements(spec.name.c_str());
  }
  return of;
}

Flops diff_attention_flops(const bench::Shape& s) {
  bench::Shape both = s;
  both.heads = 2 * s.heads;
  const int64_t width = s.dim / s.heads;
  return products(s.batch * s.length, 4 * s.dim * s.dim) +
         bench::read_flops(PriorType::kSoftmax, both, {.key = width / 2, .value = width}, /*free_energy=*/false);
}

Flops hyena_flops(const MixerShapes& of, const bench::Shape& s) {
  const int64_t channels = of.size("output.weight", 1);
  // Of u and of the result a row of the batch, of the filter once; a product of complex numbers is 6.
  const double length = 2.0 * static_cast<double>(s.length), transform = 2.5 * length * std::log2(length);
  const auto convolution =
      static_cast<int64_t>(static_cast<double>(channels) * (static_cast<double>(2 * s.batch + 1) * transform +
                                                            6.0 * static_cast<double>(s.batch * (s.length + 1))));
  const int64_t filter =
      of.elements("filter.features.weight") + of.elements("filter.hidden.weight") + of.elements("filter.output.weight");
  return products(s.batch * s.length, of.of_tokens) + products(s.length, filter) + Flops{convolution, convolution};
}

// Products of K x V at every token of a head; in the backward two for each, and all but the read once more.
Flops matrix_state_flops(const MixerShapes& of, const bench::Shape& s, int64_t key, int64_t value, int64_t forward) {
  const int64_t product = 2 * s.batch * s.length * s.heads * key * value;
  return products(s.batch * s.length, of.of_tokens) + Flops{forward * product, (3 * forward - 1) * product};
}

Flops delta_flops(const MixerShapes& of, const bench::Shape& s) {
  const int64_t value = of.size("norm.weight", 0), key = (of.size("input.weight", 0) / s.heads - value) / 2;
  return matrix_state_flops(of, s, key, value, 3);
}

Flops mamba2_flops(const MixerShapes& of, const bench::Shape& s) {
  const int64_t inner = of.size("output.weight", 1), state = (of.size("input.weight", 0) - inner) / 2;
  return matrix_state_flops(of, s, state, inner / s.heads, 2);
}

// Attention on values that are as wide as this, `cores` times its own products.
Flops newton_flops(const bench::Shape& s, int64_t value, int64_t cores) {
  const Flops core = bench::read_flops(PriorType::kSoftmax, s, {.key = s.dim / s.heads, .value = value},
                                       /*free_energy=*/false);
  return products(s.batch * s.length, 4 * s.dim * s.dim) + Flops{cores * core.forward, cores * core.backward};
}

Flops mixing_flops(const BackboneOptions& options, const bench::Shape& shape) {
  switch (options.block_mixer) {
    case BlockMixer::kFem:
      return bench::mixer_flops(options.mixer, shape);
    case BlockMixer::kAttention:
      return bench::attention_layer_flops(shape);
    case BlockMixer::kDiffAttention:
      return diff_attention_flops(shape);
    case BlockMixer::kHyena:
      return hyena_flops(shapes_of(options), shape);
    case BlockMixer::kDeltaNet:
    case BlockMixer::kGatedDeltaNet:
      return delta_flops(shapes_of(options), shape);
    case BlockMixer::kMamba2:
      return mamba2_flops(shapes_of(options), shape);
    case BlockMixer::kNewton:
      return newton_flops(shape, shape.dim / shape.heads, 2);
    case BlockMixer::kNewtonLight: {
      const int64_t width = shape.dim / shape.heads;
      return newton_flops(shape, options.curvature == Curvature::kIsotropic ? width + 1 : 2 * width, 1);
    }
    case BlockMixer::kLinearDescent:
    case BlockMixer::kGatedDescent:
      return matrix_state_flops(shapes_of(options), shape, shape.dim / shape.heads, shape.dim / shape.heads, 2);
  }
  FEM_CHECK(false, "cost: nothing is known of what ", spelled(options.block_mixer), " multiplies");
}

}  // namespace

Flops backbone_flops(const BackboneOptions& options, const bench::Shape& shape) {
  const Flops block = mixing_flops(options, shape) +
                      products(shape.batch * shape.length,
                               (options.mlp == MlpType::kSwiglu ? 3 : 2) * options.n_embd * options.mlp_width);
  return {options.n_layer * block.forward, options.n_layer * block.backward};
}

}  // namespace fem
