#include "bench/energy.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/headeronly/version.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "bench/machine.h"
#include "bench/reads.h"
#include "fem/ops/newton_read.h"
#include "fem/ops/softmax_read.h"
#include "fem/version.h"
#include "io/versions.h"
#include "models/newton_light.h"
#include "util/interrupt.h"
#include "util/progress.h"
#include "util/table.h"

namespace fem::bench {
namespace {

using Tensors = std::vector<at::Tensor>;

// query, key, value and alpha; decoding, the value is what a state remembers.
struct EnergyRead {
  const char* name;
  double stated;
  bool has_alpha;
  at::Tensor (*read)(const Tensors& in);
  at::Tensor (*remembered)(const at::Tensor& value);
  at::Tensor (*decode)(const Tensors& in);
};

at::Tensor itself(const at::Tensor& value) { return value; }

at::Tensor attention(const Tensors& in) { return softmax_read(in[0], in[1], in[2], std::nullopt).mean; }

template <bool of_values>
at::Tensor newton(const Tensors& in) {
  return newton_read(in[0], in[1], in[2], in[3], {.of_values = of_values});
}

template <bool isotropic>
at::Tensor remembered_light(const at::Tensor& value) {
  return with_squares(value, isotropic);
}
template <bool isotropic>
at::Tensor decode_light(const Tensors& in) {
  return scaled_by_variance(attention(in), in[3], in[0].size(3), isotropic);
}
template <bool isotropic>
at::Tensor light(const Tensors& in) {
  return decode_light<isotropic>({in[0], in[1], with_squares(in[2], isotropic), in[3]});
}

at::Tensor torch_attention(const Tensors& in) {
  const bool causal = in[0].size(1) > 1;
  const auto first = [&](int i) { return in[i].transpose(1, 2); };
  return at::scaled_dot_product_attention(first(0), first(1), first(2), {}, 0.0, causal).transpose(1, 2);
}

constexpr EnergyRead kCore{"attention", 1, false, attention, itself, attention};
constexpr EnergyRead kTorch{"torch sdpa", 1, false, torch_attention, itself, torch_attention};
constexpr EnergyRead kReads[] = {
    kCore,
    kTorch,
    {"newton, by keys", 2, true, newton<false>, itself, newton<false>},
    {"newton, by values", 2, true, newton<true>, itself, newton<true>},
    {"newton_light, diagonal", 1.5, true, light<false>, remembered_light<false>, decode_light<false>},
    {"newton_light, isotropic", 1, true, light<true>, remembered_light<true>, decode_light<true>},
};
constexpr const char* kKinds[] = {"forward", "backward", "decode"};

Tensors inputs_of(const Shape& s) {
  const auto rows = [&] { return at::randn({s.batch, s.length, s.heads, s.dim / s.heads}); };
  return {rows(), rows(), rows(), at::full({s.heads}, 0.1)};
}

Work work_of(const EnergyRead& read, const std::string& kind, const Shape& s) {
  Tensors in = inputs_of(s);
  if (kind == "decode") {
    in[0] = in[0].slice(1, s.length - 1).contiguous();
    in[2] = read.remembered(in[2]);
    return [in, run = read.decode] {
      const at::NoGradGuard no_grad;
      run(in);
    };
  }
  const Tensors learned(in.begin(), in.end() - (read.has_alpha ? 0 : 1));
  for (const at::Tensor& x : learned) x.requires_grad_();
  const ReadUnderTest side{learned, [in, run = read.read] { return Tensors{run(in)}; }};
  return kind == "forward" ? forward_of(side) : backward_of(side);
}

}  // namespace

std::vector<EnergyCase> bench_energy(const std::vector<Shape>& shapes, int64_t repeats) {
  constexpr auto kRuns = static_cast<int64_t>(std::size(kReads) * std::size(kKinds));
  Progress progress("bench energy", kRuns * repeats * static_cast<int64_t>(shapes.size()), "run");
  int64_t done = 0;
  std::vector<EnergyCase> cases;
  for (const Shape& shape : shapes)
    for (const char* kind : kKinds) {
      std::vector<Work> works;
      for (const EnergyRead& read : kReads) works.push_back(work_of(read, kind, shape));
      const std::vector<double> ms =
          time_all_in_turn(works, repeats, [&] { progress.update(++done, shape.name + " " + kind); });
      if (interrupted()) return cases;
      for (size_t i = 0; i < std::size(kReads); ++i)
        cases.push_back({kReads[i].name, shape.name, kind, ms[i], ms[0], ms[1], kReads[i].stated});
    }
  return cases;
}

void print_energy(const std::vector<EnergyCase>& cases, std::ostream& out) {
  Table table({"read", "shape", "", "ms", "to the core", "stated", "to torch's"});
  for (const EnergyCase& c : cases)
    table.add({c.read, c.shape, c.kind, fixed(c.ms, c.ms < 10 ? 3 : 1), fixed(c.ratio(), 2), fixed(c.stated, 1),
               fixed(c.ms / c.torch_ms, 2)});
  out << table.str() << "\nfloat32, " << at::get_num_threads() << " threads, " << instruction_set()
      << " kernels, torch " << TORCH_VERSION << ". Medians; the core is attention on our kernels.\n";
}

void write_energy_json(const std::vector<EnergyCase>& cases, std::ostream& out) {
  for (const EnergyCase& c : cases) {
    const nlohmann::ordered_json line{{"bench", "energy"},
                                      {"read", c.read},
                                      {"shape", c.shape},
                                      {"kind", c.kind},
                                      {"ms", c.ms},
                                      {"core_ms", c.core_ms},
                                      {"torch_ms", c.torch_ms},
                                      {"ratio", c.ratio()},
                                      {"stated", c.stated},
                                      {"versions", versions_json()}};
    out << line.dump() << "\n";
  }
}

}  // namespace fem::bench
