#include "experiments/energy/bridge.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>

#include "fem/energy.h"
#include "fem/io/model_folder.h"
#include "fem/ops/rms_norm.h"
#include "fem/text/text_model.h"
#include "io/folder_lock.h"
#include "io/read_file.h"
#include "models/backbone.h"
#include "models/token_mixer.h"
#include "priors/query_key.h"
#include "util/check.h"
#include "util/hash.h"

namespace fem {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestBook = uint64_t{1} << 30;

// One block's own part of the parameters.
struct Layer {
  const LanguageModelOptions& options;
  at::Tensor norm;
  std::vector<at::Tensor> mixer;

  Layer(const LanguageModel& model, int64_t index) : options(model->options) {
    const auto named = model->named_parameters();
    const std::string prefix = "blocks." + std::to_string(index) + ".";
    norm = named[prefix + "mixer_norm.weight"].detach();
    for (const ParameterSpec& spec : token_mixer_of(options.block_mixer).parameters(options, index))
      mixer.push_back(named[prefix + "mixer." + spec.name].detach());
  }

  // [B, T]: the energy of the keys of a stream x at the queries of another, mean over the heads.
  at::Tensor energy_at(const at::Tensor& x, const at::Tensor& query) const {
    const auto normed = [&](const at::Tensor& stream) { return rms_norm(stream, norm, options.norm_eps); };
    const QueryAndKey asked =
        token_mixer_of(options.block_mixer).queries_and_keys(options, mixer, {normed(x), normed(query)});
    return energy(asked.query, asked.key, {.potential = Potential::kProduct}).mean(-1);
  }
};

BridgeLayer measure_layer(const Layer& layer, const at::Tensor& before, const at::Tensor& after,
                          at::Generator& chance) {
  const at::Tensor x = before.detach().requires_grad_();
  const at::Tensor first = layer.energy_at(before, x);
  const at::Tensor gradient = torch::autograd::grad({first.sum()}, {x})[0];
  const at::NoGradGuard no_gradients;
  const at::Tensor update = after - before, length = update.norm(2, -1, true);
  const auto as_long = [&](const at::Tensor& direction) {
    return direction * (length / direction.norm(2, -1, true).clamp_min(1e-300));
  };
  const auto drop = [&](const at::Tensor& step) {
    return (first - layer.energy_at(before, before + step)).mean().item<double>();
  };
  return {.energy = first.mean().item<double>(),
          .drop = drop(update),
          .gradient_drop = drop(as_long(-gradient)),
          .random_drop = drop(as_long(at::randn(x.sizes(), chance, at::kDouble))),
          .cosine = at::cosine_similarity(update, -gradient, -1).mean().item<double>()};
}

// Rows of equal length, spread evenly over the tokens.
at::Tensor rows_of(const std::vector<int64_t>& tokens, const BridgePlan& plan) {
  const auto all = static_cast<int64_t>(tokens.size());
  FEM_CHECK(plan.rows >= 1 && plan.length >= 2, "bridge: expected at least one row of two tokens, got ", plan.rows,
            " of ", plan.length);
  FEM_CHECK(all >= plan.length, "bridge: expected at least ", plan.length, " tokens in the last tenth of ",
            plan.text.string(), ", got ", all, "; shorten --length");
  std::vector<at::Tensor> rows;
  for (int64_t row = 0; row < plan.rows; ++row) {
    const int64_t first = plan.rows == 1 ? 0 : (all - plan.length) * row / (plan.rows - 1);
    rows.push_back(at::tensor(at::ArrayRef(tokens.data() + first, plan.length), at::kLong));
  }
  return at::stack(rows);
}

std::string last_tenth(const std::filesystem::path& text) {
  const std::string all = read_file(text, "bridge", kLargestBook);
  return all.substr(all.size() - all.size() / 10);
}

// A measure of every layer, and its mean.
struct Measures {
  Json means = Json::object(), curves = Json::object();

  Measures(const std::vector<BridgeLayer>& layers,
           const std::vector<std::pair<const char*, double (*)(const BridgeLayer&)>>& measures) {
    for (const auto& [name, value] : measures) {
      double sum = 0;
      for (size_t i = 0; i < layers.size(); ++i) {
        sum += value(layers[i]);
        curves[name].push_back({static_cast<int64_t>(i), value(layers[i])});
      }
      means[name] = sum / static_cast<double>(layers.size());
    }
  }
};

Json result_of(const std::vector<BridgeLayer>& layers, int64_t parameters) {
  const Measures measures(layers, {{"share", [](const BridgeLayer& l) { return l.drop / l.gradient_drop; }},
                                   {"drop", [](const BridgeLayer& l) { return l.drop; }},
                                   {"gradient_drop", [](const BridgeLayer& l) { return l.gradient_drop; }},
                                   {"random_drop", [](const BridgeLayer& l) { return l.random_drop; }},
                                   {"cosine", [](const BridgeLayer& l) { return l.cosine; }},
                                   {"energy", [](const BridgeLayer& l) { return l.energy; }}});
  return {{"parameters", parameters},
          {"goal", {{"measure", "share"}, {"larger_is_better", true}}},
          {"measures", measures.means},
          {"curves", measures.curves}};
}

// What a result is of, besides its recipe.
Json content_of(const BridgeModel& model, const std::string& text) {
  const auto weights = model_folder(model.folder) / "model.safetensors";
  return {{"weights", hex(fnv1a(read_file(weights, "bridge", kLargestBook)))}, {"text", hex(fnv1a(text))}};
}

}  // namespace

std::vector<BridgeLayer> measure_bridge(LanguageModel& model, const at::Tensor& tokens) {
  model->to(at::kDouble);
  model->eval();
  Trace made;
  {
    const at::NoGradGuard no_gradients;
    made = model->trace(tokens);
  }
  at::Generator chance = at::detail::createCPUGenerator(0);
  std::vector<BridgeLayer> layers;
  for (int64_t i = 0; i < model->options.n_layer; ++i) {
    const auto of = [](int64_t block, const char* what) { return "blocks." + std::to_string(block) + what; };
    const at::Tensor before = found(made, i == 0 ? "embedding" : of(i - 1, ".mlp")),
                     after = found(made, of(i, ".mixer"));
    layers.push_back(measure_layer(Layer(model, i), before, after, chance));
  }
  return layers;
}

BridgeModel bridge_model(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  FEM_CHECK(equals != std::string::npos && equals > 0 && equals + 1 < assignment.size(),
            "--model: expected NAME=FOLDER, got '", assignment, "'");
  return {assignment.substr(0, equals), assignment.substr(equals + 1)};
}

Grid bridge_grid(const BridgePlan& plan) {
  FEM_CHECK(!plan.models.empty(), "bridge: expected at least one --model");
  Grid grid{.axes = {"model"}, .choices = {{}}, .seeded = {"seed"}};
  std::map<std::string, int64_t> counted;
  for (const BridgeModel& model : plan.models) {
    if (++counted[model.name] > static_cast<int64_t>(grid.seeds.size())) grid.seeds.push_back(counted[model.name]);
    if (counted[model.name] > 1) continue;
    const json recipe{{"text", plan.text.filename().string()}, {"rows", plan.rows}, {"length", plan.length}};
    grid.cells.push_back({{model.name}, "bridge", {}, recipe});
  }
  check(grid, "bridge");
  return grid;
}

void run_bridge(const BridgePlan& plan, const std::filesystem::path& out) {
  const Grid grid = bridge_grid(plan);
  const std::string text = last_tenth(plan.text);
  std::filesystem::create_directories(out);
  const FolderLock only(out, "bridge");
  SweepResults results(sweep_results_path(out));
  std::map<std::string, int64_t> counted;
  for (const BridgeModel& model : plan.models) {
    const auto cell = std::find_if(grid.cells.begin(), grid.cells.end(),
                                   [&](const Cell& one) { return one.labels[0] == model.name; });
    const GridRun run = run_of(grid, static_cast<size_t>(cell - grid.cells.begin()), 0, ++counted[model.name]);
    const Json content = content_of(model, text);
    if (const Json* known = results.finished(run)) {
      FEM_CHECK(known->value("content", content) == content, "bridge: ", sweep_results_path(out).string(), " has ",
                run.name, " of other weights or another text; give another --out");
      continue;
    }
    TextModel loaded = load_text_model(model.folder);
    const at::Tensor tokens = rows_of(loaded.tokenizer->encode(text), plan);
    const int64_t parameters = parameter_count(language_model_parameters(loaded.model->options));
    Json result = result_of(measure_bridge(loaded.model, tokens), parameters);
    result["content"] = content;
    results.add_finished(grid, run, result);
  }
}

}  // namespace fem
