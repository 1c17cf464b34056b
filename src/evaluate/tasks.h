// Tasks of log-likelihoods, one JSON object a line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fem/text/likelihood.h"

namespace fem {

// The likeliest continuation is the answer. What is scored is a space and the continuation after the context, also
// where there is no context or it ends in white space: the lm-evaluation-harness's target_delimiter.
struct Question {
  std::vector<Continuation> choices;
  size_t gold = 0;
};

// Recognised by their fields:
//   minimal pairs     sentence_good, sentence_bad                      BLiMP
//   multiple choice   query, choices, gold                             ARC, PIQA, OpenBookQA, COPA, BoolQ
//   shared ending     context_options, continuation, gold              WinoGrande
//   last word         context, continuation                            LAMBADA
std::vector<Question> read_task(const std::filesystem::path& path);

struct TaskScore {
  std::string name;
  int64_t questions = 0;
  double accuracy = 0;  // by log-likelihood, of equal ones the first; for one choice: whether greedy decoding gives it
  double normalized_accuracy = 0;  // by log-likelihood a character of the continuation, without the space before it
  double standard_error = 0;       // of accuracy; NaN for one question
  double perplexity = 0;           // exp(-mean log-likelihood of the gold continuation)
  std::vector<std::vector<double>> log_probabilities;  // of every question's choices
};

// The first limit questions of a file (0: all), with progress. Throws Interrupted when a signal came.
TaskScore score_task(LanguageModel& model, const Tokenizer& tokenizer, const std::filesystem::path& path,
                     int64_t batch_tokens, int64_t limit = 0);

}  // namespace fem
