// A long stream: what it costs per token and what the process holds, at its beginning and at its end.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "fem/options.h"

namespace fem::bench {

struct StreamSettings {
  std::vector<PriorType> priors;
  int64_t tokens = 1000000;
  int64_t piece = 1000;   // tokens a call
  int64_t single = 1000;  // token by token, near the beginning and at the end
  int64_t window = 1024;  // of the softmax prior: without one it remembers every token
  int64_t dim = 256, heads = 4;
};

// Of the beginning or the end of a stream.
struct StreamPart {
  double tokens_per_s = 0;         // in pieces
  double single_tokens_per_s = 0;  // one by one
  int64_t state_bytes = 0;         // what the state holds
  int64_t resident_bytes = 0;      // what the process holds
};

struct Stream {
  std::string layer;
  int64_t tokens = 0;             // read in all; fewer than asked for if a signal came
  StreamPart early, late;         // after a hundredth of the tokens, and after all
  std::vector<int64_t> resident;  // after every tenth of the tokens
  int64_t growth() const;         // of what the process holds: the most later than early
};

// One layer after the other.
std::vector<Stream> bench_stream(const StreamSettings& settings);

void print_streams(const std::vector<Stream>& streams, const StreamSettings& settings, std::ostream& out);
void write_stream_json(const std::vector<Stream>& streams, const StreamSettings& settings, std::ostream& out);

}  // namespace fem::bench
