#include "fem/letters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "fem/mixer.h"
#include "util/check.h"

namespace fem {
namespace {

MixerOptions parts_of(MixerOptions options, std::string_view letters) {
  const auto has = [&](char letter) { return letters.find(letter) != std::string_view::npos; };
  options.use_conv = has('C');
  options.use_lse = has('L');
  options.use_temperature = has('T');
  options.use_inner_gate = has('T') || !has('L');  // "L" alone reads the free energy itself
  options.use_outer_gate = has('G');
  return options;
}

int64_t count(const MixerOptions& options) {
  int64_t total = 0;
  for (const ParameterSpec& spec : mixer_parameters(options)) total += c10::multiply_integers(spec.shape);
  return total;
}

}  // namespace

LetterChoice with_letters(const MixerOptions& options, std::string_view letters) {
  std::string known;
  for (const std::string_view each : kLetters) known += (known.empty() ? "\"" : ", \"") + std::string(each) + "\"";
  FEM_CHECK(std::find(kLetters.begin(), kLetters.end(), letters) != kLetters.end(), "letters: expected one of ", known,
            " (C conditioner, L log-sum-exp read, T temperature, G outer gate), got \"", letters, "\"");
  const MixerOptions full = parts_of(options, "CLTG");
  const MixerSizes sizes = sizes_of(full);
  const int64_t wanted = count(full), step = 4 * full.n_head;

  MixerOptions chosen = parts_of(full, letters);
  if (sizes.key > 0) chosen.qk_dim = sizes.key;
  if (chosen.use_conv) chosen.conv_hidden = sizes.conditioner;
  LetterChoice best{chosen, 0, wanted};
  // A part left out makes room: the width only grows, and past twice the parameters nothing comes nearer.
  for (int64_t width = sizes.value;; width += step) {
    chosen.fem_dim = width;
    const int64_t parameters = count(chosen);
    if (best.parameters == 0 || std::abs(parameters - wanted) < std::abs(best.parameters - wanted))
      best.options = chosen, best.parameters = parameters;
    if (parameters > 2 * wanted) return best;
  }
}

std::string LetterChoice::words() const {
  std::ostringstream text;
  text << "value width " << *options.fem_dim << " with " << parameters << " parameters";
  const int64_t more = parameters - full_parameters;
  if (more == 0)
    text << ", as many as the full mixer";
  else
    text << ", " << std::abs(more) << (more > 0 ? " more" : " fewer") << " than the full mixer's " << full_parameters
         << ": the nearest multiple of " << 4 * options.n_head;
  return text.str();
}

}  // namespace fem
