// Channel-wise argmax (Appendix P of the paper): what is read, and by what.
#pragma once

#include <cstdint>
#include <string>

#include "fem/options.h"

namespace fem {

enum class ArgmaxMixer { kFem, kMean };
template <>
struct Spelling<ArgmaxMixer> {
  static constexpr std::array values{std::pair{std::string_view("fem"), ArgmaxMixer::kFem},
                                     std::pair{std::string_view("mean"), ArgmaxMixer::kMean}};
};

struct ArgmaxOptions {
  ArgmaxMixer mixer = ArgmaxMixer::kFem;
  PriorType prior = PriorType::kSoftmax;
  int64_t dim = 64;
  int64_t heads = 4;
  int64_t length = 128;
  int64_t train_examples = 200000;
  int64_t validation_examples = 2000;
};

template <typename Options, typename Visitor>
void visit_argmax_model(Options& o, Visitor&& visit) {
  visit("mixer", o.mixer, "fem, or mean: the same prior without a free energy");
  visit("prior", o.prior, "selection prior: softmax, linear, gla, rnn_softmax, rnn_decay or mamba");
  visit("dim", o.dim, "channels D");
  visit("heads", o.heads, "heads H; each has one selection prior");
}

template <typename Options, typename Visitor>
void visit_argmax_data(Options& o, Visitor&& visit) {
  visit("length", o.length, "tokens T to choose from");
  visit("train_examples", o.train_examples, "training examples, cycled");
  visit("validation_examples", o.validation_examples, "examples of a validation");
}

}  // namespace fem
