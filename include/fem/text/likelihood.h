// How likely a model finds what follows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fem/language_model.h"
#include "fem/text/tokenizer.h"

namespace fem {

// A text in two parts, tokenized as one. The context may be empty.
struct Continuation {
  std::string context, continuation;
};

struct Likelihood {
  double log_probability = 0;  // of the tokens that reach beyond the context, in nats
  bool greedy = true;          // is every one of them the likeliest?
};

// Many at a time: sequences are packed in one row of about batch_tokens tokens, without padding. A longer one goes
// alone. on_scored is told how many are done.
std::vector<Likelihood> likelihoods(LanguageModel& model, const Tokenizer& tokenizer,
                                    const std::vector<Continuation>& texts, int64_t batch_tokens,
                                    const std::function<void(int64_t done)>& on_scored = {});

// With the white space at the context's end in the continuation, as the lm-evaluation-harness has it: tokenizers put a
// space in front of a word.
Continuation parted_before_space(Continuation text);

}  // namespace fem
