// How likely a model finds what follows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "fem/language_model.h"

namespace fem {

// A space goes between context and continuation unless there is white space already or no context.
struct Continuation {
  std::string context, continuation;
};

struct Likelihood {
  double log_probability = 0;  // of the continuation's tokens after the separator and the context, in nats
  bool greedy = true;          // is every one of them the likeliest?
};

// Many at a time: sequences are packed in one row of about batch_tokens tokens, without padding. A longer one goes
// alone. on_scored is told how many are done.
std::vector<Likelihood> likelihoods(LanguageModel& model, const Tokenizer& tokenizer,
                                    const std::vector<Continuation>& texts, int64_t batch_tokens,
                                    const std::function<void(int64_t done)>& on_scored = {});

}  // namespace fem
