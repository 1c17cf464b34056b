// Looking inside a layer: which token every channel chose, at which hidden temperature, for how many nats.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "fem/backbone.h"
#include "fem/mixer.h"
#include "fem/options.h"

namespace fem {

// The reads of N chosen tokens, in float64 whatever the layer computes in. B rows, T tokens, H heads, V channels a
// head; C is 1 where the channels of a head share one prior, else V. Where nothing is visible, weights and reads are 0
// and choices -1. A layer that reads means only has q = p, beta = lambda = 0 and F = mean.
//
// mean, free_energy and gated are the prior's read of the values. What some options do to it afterwards is not in them:
// the query's factor of rnn_softmax, mamba's missing normaliser, the choice among channels of mamba_interact.
struct Inspection {
  at::Tensor prior;                    // p_t(i)      [B, N, H, C, T]
  at::Tensor posterior;                // q_t^(j)(i)  [B, N, H, V, T], p e^{beta v} / sum
  at::Tensor prior_choice, choice;     // argmax of p and of q, int64 [B, N, H, V]
  at::Tensor mean, free_energy;        // mu and F    [B, N, H, V]
  at::Tensor gated;                    // u = (1 - lambda) mu + lambda F, before the outer gate
  at::Tensor lambda, outer_gate;       // [B, N, H, V]; in dialect paper lambda may leave [0, 1]
  at::Tensor beta;                     // [H, V]
  at::Tensor hidden_beta;              // beta* with F(beta*) = u, [B, N, H, V]; NaN: no temperature has this read
  at::Tensor kl_pq, kl_qp;             // KL(p||q) and KL(q||p) in nats, [B, N, H, V]
  at::Tensor prior_entropy, entropy;   // of p and of q in nats, [B, N, H, C] and [B, N, H, V]
  at::Tensor prior_rank, rank;         // effective rank of p and of du/dv = (1 - lambda) p + lambda q, [B, N, H]
  at::Tensor capped;                   // share of the batch's values at the cap, [H, V]
  at::Tensor energy, energy_gradient;  // F* of the keys at the query and its gradient's norm (fem/energy.h), [B, N, H];
                                       // undefined unless p is a softmax of q.k over all earlier tokens
};

// Calls visit(name, tensor) for every field.
template <typename Fields, typename Visitor>
void visit_inspection(Fields& i, Visitor&& visit) {
  visit("prior", i.prior);
  visit("posterior", i.posterior);
  visit("prior_choice", i.prior_choice);
  visit("choice", i.choice);
  visit("mean", i.mean);
  visit("free_energy", i.free_energy);
  visit("gated", i.gated);
  visit("lambda", i.lambda);
  visit("outer_gate", i.outer_gate);
  visit("beta", i.beta);
  visit("hidden_beta", i.hidden_beta);
  visit("kl_pq", i.kl_pq);
  visit("kl_qp", i.kl_qp);
  visit("prior_entropy", i.prior_entropy);
  visit("entropy", i.entropy);
  visit("prior_rank", i.prior_rank);
  visit("rank", i.rank);
  visit("capped", i.capped);
  visit("energy", i.energy);
  visit("energy_gradient", i.energy_gradient);
}

// positions: N tokens from 0 to T - 1. Makes a few times B N H V T numbers and nothing of size T x T: for many tokens,
// ask for some at a time. Without gradients.
Inspection inspect(const MixerInput& in, const MixerWeights& weights, const MixerOptions& options,
                   const std::vector<int64_t>& positions, const Batch& batch = {});

// The mixers of a model as they were asked in one forward pass.
class ModelInspector {
 public:
  // model: any of ours, with its options and what trace() made of an input. In float64 what is seen is exact; in
  // float32 the inputs of the layers are rounded.
  ModelInspector(const torch::nn::Module& model, const BackboneOptions& options, const Trace& trace,
                 const Batch& batch = {});

  int64_t layers() const { return options_.n_layer; }
  int64_t tokens() const;  // T
  int64_t width() const;   // E, all channels
  Inspection layer(int64_t layer, const std::vector<int64_t>& positions) const;

 private:
  struct Layer {
    MixerInput in;
    std::vector<at::Tensor> weights;
  };
  const BackboneOptions options_;
  const Batch batch_;
  std::vector<Layer> layers_;
};

}  // namespace fem
