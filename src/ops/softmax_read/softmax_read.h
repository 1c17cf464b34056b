// fem::softmax_read and fem::attention_read as operators (ops/operator.h). Kept are the inputs (or what makes them
// again), and the outputs: exp(beta v), z = exp(beta F) and p are computed again.
#pragma once

#include "fem/ops/softmax_read.h"
#include "ops/operator.h"
#include "ops/remake.h"

namespace fem {

struct SoftmaxReadOp {
  static constexpr const char* kSchema =
      "softmax_read(Tensor query, Tensor key, Tensor value, Tensor? beta=None, Tensor? bias=None, Tensor? slopes=None, "
      "float? scale=None, bool causal=True, int? window=None, Tensor? key_mask=None, Tensor? cu_seqlens=None) "
      "-> (Tensor mean, Tensor free_energy, Tensor log_normalizer)";
  struct Inputs {
    at::Tensor query, key, value;
    OptionalTensor beta, bias, slopes;
    std::optional<double> scale;
    bool causal;
    std::optional<int64_t> window;
    OptionalTensor key_mask, cu_seqlens;
    FEM_FIELDS(query, key, value, beta, bias, slopes, scale, causal, window, key_mask, cu_seqlens)

    double scale_of_scores() const;
    bool is_biased() const { return bias || slopes; }
  };
  // free_energy has no elements without beta. Of bfloat16 inputs the last two are float32: of F in bfloat16,
  // exp(beta F) would be off by 16 % at the cap; softmax_read() rounds what users see.
  struct Outputs {
    at::Tensor mean, free_energy, log_normalizer;
    FEM_FIELDS(mean, free_energy, log_normalizer)
  };
  static constexpr size_t kLearned = 5;
  static constexpr size_t kConstantOutputs = 1;
  static constexpr std::array<size_t, 3> kKeptOutputs{0, 1, 2};
  static constexpr bool kRemakesInputs = true;

  static void check(const Inputs& in);
  static std::vector<Spec> outputs(const Inputs& in);
  static Outputs definition(const Inputs& in);
  static Outputs elsewhere(
      const Inputs& in);  // torch's attention in blocks of queries, on every device (any_device.cpp)
  static Inputs gradient_elsewhere(const BackwardOf<SoftmaxReadOp>& b);
  static void kernel(const Inputs& in, Outputs& out);
  static Inputs gradient_kernel(const BackwardOf<SoftmaxReadOp>& b);
  // A few heads at a time, so that of inputs that are made again only theirs are there. None: not for these tensors.
  static std::optional<Inputs> gradient_in_parts(const BackwardOf<SoftmaxReadOp>& b,
                                                 const std::vector<torch::autograd::Node*>& makers);
};

// What every read of queries, keys and values asks of them, its mask, window and borders; op names it in the sentences.
void check_attention(const char* op, const SoftmaxReadOp::Inputs& in);

// The same by torch's attention, on the CPU, too.
struct AttentionReadOp : SoftmaxReadOp {
  static constexpr const char* kSchema =
      "attention_read(Tensor query, Tensor key, Tensor value, Tensor? beta=None, Tensor? bias=None, "
      "Tensor? slopes=None, float? scale=None, bool causal=True, int? window=None, Tensor? key_mask=None, "
      "Tensor? cu_seqlens=None) -> (Tensor mean, Tensor free_energy, Tensor log_normalizer)";
  static constexpr bool kAnnounced = false;

  static bool has_kernel(const Inputs&) { return true; }
  static void kernel(const Inputs& in, Outputs& out) { out = elsewhere(in); }
  static Inputs gradient_kernel(const BackwardOf<AttentionReadOp>& b) { return gradient_elsewhere(b); }
  static Inputs gradient_elsewhere(const BackwardOf<AttentionReadOp>& b) {
    return SoftmaxReadOp::gradient_elsewhere({b.grads, b.in, b.out, b.wanted});
  }
  static void gradient_in_parts() = delete;
};

// (query, key, value, beta, bias), of which those that are not given are undefined: gradients are written here,
// whatever their strides but for an element's, which is 1. The query is let go as soon as it was read.
struct SoftmaxGradients {
  at::Tensor query, key, value, beta, bias;
};
void softmax_read_backward_into(const SoftmaxGradients& to, const SoftmaxReadOp::Outputs& grads,
                                SoftmaxReadOp::Inputs in, const SoftmaxReadOp::Outputs& out);

}  // namespace fem
