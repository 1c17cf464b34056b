// fem::newton_read as an operator (ops/operator.h). Kept are the inputs and, of every query, m and the log-normaliser.
#pragma once

#include "fem/ops/newton_read.h"
#include "ops/operator.h"
#include "ops/softmax_read/softmax_read.h"

namespace fem {

struct NewtonReadOp {
  static constexpr const char* kSchema =
      "newton_read(Tensor query, Tensor key, Tensor value, Tensor alpha, bool of_values=False, float rho=0.0, "
      "float? scale=None, bool causal=True, Tensor? key_mask=None, Tensor? cu_seqlens=None) "
      "-> (Tensor read, Tensor mean, Tensor log_normalizer)";
  struct Inputs {
    at::Tensor query, key, value, alpha;
    bool of_values;
    double rho;
    std::optional<double> scale;
    bool causal;
    OptionalTensor key_mask, cu_seqlens;
    FEM_FIELDS(query, key, value, alpha, of_values, rho, scale, causal, key_mask, cu_seqlens)

    // The attention that is preconditioned.
    SoftmaxReadOp::Inputs attention() const {
      return {query, key, value, {}, {}, {}, scale, causal, {}, key_mask, cu_seqlens};
    }
    const at::Tensor& space() const { return of_values ? value : key; }
  };
  // mean is m [B, Tq, H, K or V]; as the log-normaliser [B, Tq, H] it is float32 of bfloat16.
  struct Outputs {
    at::Tensor read, mean, log_normalizer;
    FEM_FIELDS(read, mean, log_normalizer)
  };
  static constexpr size_t kLearned = 4;
  static constexpr size_t kConstantOutputs = 2;
  static constexpr std::array<size_t, 2> kKeptOutputs{1, 2};

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<NewtonReadOp>& b);
};

}  // namespace fem
