#include "io/mixer_config.h"

#include "io/options_json.h"

namespace fem {

using nlohmann::json;

json to_json(const MixerOptions& options) {
  json out = json::object();
  visit_mixer_options(options,
                      [&](const char* name, const auto& value, const char*) { write_option(out[name], value); });
  return out;
}

MixerOptions mixer_options_from_json(const json& in) {
  MixerOptions options;
  OptionsReader reader("mixer options", in);
  FEM_CHECK(
      in.value("softmax_backend", json()) != "flash",
      "mixer options: softmax_backend \"flash\" is the flash-attn package's, which needs CUDA and cannot carry the "
      "free energy: expected \"auto\" (our fused kernels), \"fused\", \"reference\" or \"sdpa\"");
  visit_mixer_options(options, reader);
  reader.finish();
  return options;
}

}  // namespace fem
