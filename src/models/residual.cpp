#include "models/residual.h"

#include <ATen/ATen.h>

namespace fem {
namespace {

// x + y
class PlainResidual final : public Residual {
 public:
  Stream step(const Stream& stream, const at::Tensor& update, const std::vector<at::Tensor>&) const override {
    return {stream.x + update, stream.velocity};
  }
};

}  // namespace

// Every configuration has the plain one.
const Residual& residual_of(const BackboneOptions&) {
  static const PlainResidual plain;
  return plain;
}

}  // namespace fem
