#include "inspect/numbers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "inspect/statistics.h"
#include "util/check.h"
#include "util/grouped.h"

namespace fem {
namespace {

constexpr int64_t kKept = 16;  // entries of a posterior, the largest

// A figure of every token in every layer.
struct Map {
  at::Tensor values;  // [L, T]
  Map(int64_t layers, int64_t tokens) : values(at::zeros({layers, tokens}, at::kDouble)) {}
  void put(int64_t layer, const std::vector<int64_t>& positions, const at::Tensor& one_each) {
    values[layer].slice(0, positions.front(), positions.back() + 1).copy_(one_each);
  }
};

struct Maps {
  Map disagree, kl, rank;
  std::vector<LayerStatistics> layers;

  Maps(const ModelInspector& inspector, const std::function<void(int64_t)>& on_part)
      : disagree(inspector.layers(), inspector.tokens()),
        kl(inspector.layers(), inspector.tokens()),
        rank(inspector.layers(), inspector.tokens()),
        layers(static_cast<size_t>(inspector.layers())) {
    inspect_all(inspector, [&](int64_t layer, const std::vector<int64_t>& positions, const Inspection& i) {
      const auto of_tokens = [](const at::Tensor& x) { return x.to(at::kDouble).flatten(2).mean(2)[0]; };
      disagree.put(layer, positions, of_tokens(i.choice != i.prior_choice));
      kl.put(layer, positions, of_tokens(i.kl_qp));
      rank.put(layer, positions, of_tokens(i.rank));
      layers[static_cast<size_t>(layer)].add(i);
      on_part(layer);
    });
  }
};

// All tokens if there is room; else those where channels disagree most, and as many spread evenly.
std::vector<int64_t> rows_to_show(const at::Tensor& disagree, int64_t room) {
  const int64_t tokens = disagree.size(1);
  std::vector<int64_t> rows = spread(tokens, tokens <= room ? tokens : room / 2);
  if (tokens > room) {
    const at::Tensor order = disagree.mean(0).argsort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
    for (int64_t i = 0; i < tokens && static_cast<int64_t>(rows.size()) < room; ++i)
      if (const int64_t t = order[i].item<int64_t>(); std::find(rows.begin(), rows.end(), t) == rows.end())
        rows.push_back(t);
    std::sort(rows.begin(), rows.end());
  }
  return rows;
}

// What is kept of the chosen tokens of one layer, [N, ...] each.
std::map<std::string, at::Tensor> kept_of(const Inspection& i) {
  const auto channels = [&](const at::Tensor& x) { return x.expand_as(i.mean); };
  const int64_t kept = std::min<int64_t>(kKept, i.posterior.size(-1));
  auto [weight, token] = i.posterior.topk(kept);
  token = token.masked_fill(weight == 0, -1);
  std::map<std::string, at::Tensor> all{{"prior", i.prior.mean(3)},
                                        {"top_token", token},
                                        {"top_weight", weight},
                                        {"choice", i.choice},
                                        {"prior_choice", i.prior_choice},
                                        {"mean", i.mean},
                                        {"free_energy", i.free_energy},
                                        {"gated", i.gated},
                                        {"kl_pq", i.kl_pq},
                                        {"kl_qp", i.kl_qp},
                                        {"hidden_beta", i.hidden_beta},
                                        {"lambda", i.lambda},
                                        {"outer_gate", i.outer_gate},
                                        {"entropy", channels(i.entropy)},
                                        {"rank", i.rank},
                                        {"prior_rank", i.prior_rank},
                                        {"prior_entropy", i.prior_entropy.mean(3)}};
  if (i.energy.defined()) all["energy"] = i.energy, all["energy_gradient"] = i.energy_gradient;
  for (auto& [name, x] : all) x = x[0];
  all["beta"] = i.beta;
  all["capped"] = i.capped;
  return all;
}

at::Tensor as_written(const at::Tensor& x) { return x.to(x.is_floating_point() ? at::kFloat : at::kInt).contiguous(); }

// Where channels disagree most, and of those the head that spends most nats.
Json most_interesting(const std::vector<int64_t>& rows, const at::Tensor& disagree, const at::Tensor& kl) {
  const at::Tensor shown = disagree.index_select(1, at::tensor(rows, at::kLong));  // [L, N]
  const int64_t place = shown.argmax().item<int64_t>(), count = shown.size(1), layer = place / count;
  const int64_t head = kl[layer][place % count].mean(-1).argmax().item<int64_t>();
  return {{"row", place % count}, {"layer", layer}, {"head", head}};
}

}  // namespace

Safetensors page_numbers(Subject& subject, const std::string& command,
                         const std::function<void(int64_t done, int64_t all)>& on_layer, int64_t most_bytes) {
  const at::NoGradGuard no_gradients;
  Shown shown = subject.shown();
  const BackboneOptions& options = subject.options();
  const ModelInspector inspector(subject.model(), options, shown.trace);
  const int64_t layers = inspector.layers(), tokens = inspector.tokens();
  FEM_CHECK(static_cast<int64_t>(shown.tokens.size()) == tokens, "inspect: expected a label for each of ", tokens,
            " tokens, got ", shown.tokens.size());
  const Maps maps(inspector, [&](int64_t layer) { on_layer(layer, 2 * layers); });

  const int64_t heads = options.n_head, width = inspector.width();
  const int64_t bytes_a_row = 4 * layers * (heads * tokens + width * (2 * std::min(kKept, tokens) + 11) + 5 * heads);
  const std::vector<int64_t> rows =
      rows_to_show(maps.disagree.values, std::max<int64_t>(2, most_bytes / std::max<int64_t>(bytes_a_row, 1)));

  Safetensors numbers;
  std::map<std::string, std::vector<at::Tensor>> by_layer;
  Json of_layers = Json::array();
  bool own_priors = false;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const Inspection i = inspector.layer(layer, rows);
    own_priors |= i.prior.size(3) > 1;
    for (const auto& [name, x] : kept_of(i)) by_layer[name].push_back(x);
    of_layers.push_back(maps.layers[static_cast<size_t>(layer)].json());
    on_layer(layers + layer + 1, 2 * layers);
  }
  const Json opens_at = most_interesting(rows, maps.disagree.values, at::stack(by_layer["kl_qp"]));
  for (const auto& [name, parts] : by_layer) numbers.tensors[name] = as_written(at::stack(parts));
  numbers.tensors["rows"] = as_written(at::tensor(rows, at::kLong));
  numbers.tensors["map_disagree"] = as_written(maps.disagree.values);
  numbers.tensors["map_kl"] = as_written(maps.kl.values);
  numbers.tensors["map_rank"] = as_written(maps.rank.values);
  if (shown.picture.defined()) numbers.tensors["picture"] = shown.picture;

  if (static_cast<int64_t>(rows.size()) < tokens)
    shown.notes.push_back(grouped(static_cast<int64_t>(rows.size())) + " of " + grouped(tokens) +
                          " tokens can be opened: those where channels disagree most, and an even spread.");
  if (own_priors)
    shown.notes.push_back("Every channel has a prior of its own here; the strip shows their mean over the head.");
  if (tokens > kKept)
    shown.notes.push_back("Of every posterior the " + std::to_string(kKept) + " largest entries are kept.");
  const Json about{{"title", shown.title},
                   {"command", command},
                   {"kind", shown.kind},
                   {"mixer", spelled(options.block_mixer)},
                   {"prior", spelled(options.mixer.prior_type)},  // others have no field for it: theirs is softmax
                   {"dialect", options.block_mixer == BlockMixer::kFem ? spelled(options.mixer.dialect) : ""},
                   {"causal", options.mixer.causal},
                   {"tokens", shown.tokens},
                   {"grid", shown.grid},
                   {"notes", shown.notes},
                   {"opens_at", opens_at},
                   {"layers", of_layers}};
  numbers.metadata["fem_inspect"] = about.dump(-1, ' ', false, Json::error_handler_t::replace);
  return numbers;
}

}  // namespace fem
