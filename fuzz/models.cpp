#include <ATen/ATen.h>

#include "data/token_stream.h"
#include "fem/io/mixer_file.h"
#include "fem/io/safetensors.h"
#include "fem/mixer.h"
#include "readers.h"
#include "text/sentencepiece.h"

namespace fem::fuzz {
namespace {

void safetensors(const std::string& bytes) {
  const Safetensors content = load_safetensors(file_of(bytes, "a.safetensors"));
  for (const auto& [name, tensor] : content.tensors) {
    const auto* data = static_cast<const char*>(tensor.const_data_ptr());
    const std::string copy(data, data + tensor.nbytes());
    if (copy.size() > bytes.size()) std::abort();
  }
}

void mixer_file(const std::string& bytes) { load_mixer(file_of(bytes, "mixer.safetensors")); }

void sentencepiece(const std::string& bytes) {
  if (bytes.empty()) return;
  const TokenizerPtr tokenizer = tokenizer_of_model(bytes);
  for (const char* text :
       {"", "a", " ab  ba\n", "abababababababababababababababababababab", "\xef\xac\x81 \xe2\x91\xa0"})
    tokenizer->decode(tokenizer->encode(text));
}

void token_shard(const std::string& bytes) {
  const std::filesystem::path folder = file_of(bytes, "shard-00000.safetensors").parent_path();
  const TokenStream stream = TokenStream::open(folder, "bytes");
  stream.read(0, stream.size());
}

MixerOptions small_mixer() {
  MixerOptions options;
  options.n_embd = 8;
  options.n_head = 2;
  return options;
}

// A saved state as a safetensors file; then the layer goes on from it.
void mixer_state(const std::string& bytes) {
  static const MixerOptions options = small_mixer();
  static FreeEnergyMixer mixer(options);
  const at::NoGradGuard no_grad;
  MixerState state = MixerState::from_tensors(load_safetensors(file_of(bytes, "state.safetensors")).tensors);
  const int64_t rows = state.conditioner.defined() && state.conditioner.dim() == 2 ? state.conditioner.size(0) : 1;
  if (rows > 0 && rows < 5) mixer(at::ones({rows, 1, options.n_embd}), state);
  state.clone();
}

}  // namespace

const std::vector<Reader>& model_readers() {
  static const std::vector<Reader> readers{{"safetensors", safetensors},
                                           {"mixer_file", mixer_file},
                                           {"sentencepiece", sentencepiece},
                                           {"token_shard", token_shard},
                                           {"mixer_state", mixer_state}};
  return readers;
}

}  // namespace fem::fuzz
