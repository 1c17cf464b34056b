#include "models/residual.h"

#include <ATen/ATen.h>

#include "util/check.h"

namespace fem {
namespace {

// x + y
class PlainResidual final : public Residual {
 public:
  Stream step(const Stream& stream, const at::Tensor& update, const std::vector<at::Tensor>&) const override {
    return {stream.x + update, stream.velocity};
  }
};

// A share in (0, 1) is learned as its logit, which starts at sigmoid(-1) = 0.27; a rate is free and starts at 1. One
// number each, of which no weight decay makes less.
ParameterSpec share_spec(const char* name) { return {name, {1}, ParameterSpec::Init::kConstant, -1.0}; }
ParameterSpec rate_spec(const char* name) { return {name, {1}, ParameterSpec::Init::kConstant, 1.0}; }

at::Tensor share_of(const at::Tensor& logit, const at::Tensor& like) { return logit.sigmoid().to(like.scalar_type()); }

// Zero before the first block, whose coefficients have gradients then as those of the others, of zero.
at::Tensor velocity_of(const Stream& stream) {
  return stream.velocity.defined() ? stream.velocity : at::zeros_like(stream.x);
}

// x + rate y: what a mixer's output projection could learn as well, as one number.
class GainResidual final : public Residual {
 public:
  std::vector<ParameterSpec> parameters() const override { return {rate_spec("rate")}; }

  Stream step(const Stream& stream, const at::Tensor& update,
              const std::vector<at::Tensor>& coefficients) const override {
    return {stream.x + coefficients[0].to(update.scalar_type()) * update, stream.velocity};
  }
};

// velocity = decay velocity + rate y, then x + velocity: gradient descent with momentum, y being minus the gradient.
class MomentumResidual : public Residual {
 public:
  std::vector<ParameterSpec> parameters() const override { return {share_spec("decay"), rate_spec("rate")}; }

  Stream step(const Stream& stream, const at::Tensor& update,
              const std::vector<at::Tensor>& coefficients) const override {
    const at::Tensor before = velocity_of(stream);
    const at::Tensor velocity =
        share_of(coefficients[0], before) * before + coefficients[1].to(update.scalar_type()) * update;
    return {stream.x + velocity, velocity};
  }
};

// The same, asked where the velocity is about to lead.
class NesterovResidual : public MomentumResidual {
 public:
  std::vector<ParameterSpec> parameters() const override {
    return {share_spec("decay"), rate_spec("rate"), share_spec("look_ahead")};
  }

  MixerInput input(const Stream& stream, const std::vector<at::Tensor>& coefficients) const override {
    return ahead(stream, coefficients);
  }

 protected:
  static at::Tensor ahead(const Stream& stream, const std::vector<at::Tensor>& coefficients) {
    const at::Tensor before = velocity_of(stream);
    return stream.x + share_of(coefficients[2], before) * before;
  }
};

// The same for the queries alone: keys and values stay where they are, as the energy has them.
class NesterovQueryResidual final : public NesterovResidual {
 public:
  MixerInput input(const Stream& stream, const std::vector<at::Tensor>& coefficients) const override {
    return {stream.x, ahead(stream, coefficients)};
  }

  bool queries_apart() const override { return true; }
};

}  // namespace

const Residual& residual_of(const BackboneOptions& options) {
  static const PlainResidual plain;
  static const GainResidual gain;
  static const MomentumResidual momentum;
  static const NesterovResidual nesterov;
  static const NesterovQueryResidual nesterov_query;
  switch (options.residual) {
    case ResidualRule::kPlain:
      return plain;
    case ResidualRule::kGain:
      return gain;
    case ResidualRule::kMomentum:
      return momentum;
    case ResidualRule::kNesterov:
      return nesterov;
    case ResidualRule::kNesterovQuery:
      return nesterov_query;
  }
  FEM_CHECK(false, "residual_of: expected one of the rules in fem/backbone.h, got number ",
            static_cast<int>(options.residual));
}

}  // namespace fem
