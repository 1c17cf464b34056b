// How likely a model finds what follows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fem/language_model.h"
#include "fem/text/tokenizer.h"

namespace fem {

// A text in two parts, of which the second is scored; the context may be empty. They are tokenized by the rule of the
// lm-evaluation-harness: white space at the context's end belongs to the continuation, and the continuation's tokens
// are those of the whole text behind as many as the context alone has (docs/decisions/0027).
struct Continuation {
  std::string context, continuation;
};

struct Likelihood {
  double log_probability = 0;  // of the continuation's tokens, in nats
  bool greedy = true;          // is every one of them the likeliest?
};

// Many at a time: sequences are packed in one row of about batch_tokens tokens, without padding. A longer one goes
// alone. on_scored is told how many are done.
std::vector<Likelihood> likelihoods(LanguageModel& model, const Tokenizer& tokenizer,
                                    const std::vector<Continuation>& texts, int64_t batch_tokens,
                                    const std::function<void(int64_t done)>& on_scored = {});

}  // namespace fem
