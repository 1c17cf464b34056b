// What numbers every read refuses, and what it makes of NaN: beta of 0 or below, |beta v| beyond the range beside NaN,
// NaN alone, float16, borders of packed sequences that are none.
#include <functional>

#include "fem/ops/channel_read.h"
#include "fem/ops/free_energy_read.h"
#include "fem/ops/linear_read.h"
#include "fem/ops/softmax_read.h"
#include "fem/ops/ssm_read.h"
#include "support/error_text.h"
#include "support/kernel_test.h"

namespace fem::testing {
namespace {

using Borders = std::optional<at::Tensor>;

// A read of value [1, T, 2, V] with beta [2, V]; what is beside them is made up.
struct NamedRead {
  std::string name;
  std::function<at::Tensor(const at::Tensor& value, const at::Tensor& beta, const Borders& borders)> free_energy;
  bool checks_range = true;
  bool packs = true;
};

at::Tensor positive(at::IntArrayRef shape, const at::Tensor& like) {
  return at::linspace(0.1, 1.0, c10::multiply_integers(shape), at::kDouble).view(shape).to(like.scalar_type());
}

Ssm ssm_of(const at::Tensor& value) {
  const int64_t tokens = value.size(1), width = value.size(3), rank = 3;
  const auto of = [&](at::IntArrayRef shape) { return positive(shape, value); };
  return {of({1, tokens, 2, width}), -of({2, width, rank}), of({1, tokens, rank}), of({1, tokens, rank}),
          of({2, width})};
}

std::vector<NamedRead> every_read() {
  const auto keys = [](const at::Tensor& value) { return positive({1, value.size(1), 2, 5}, value); };
  const auto softmax = [=](auto read, int64_t queries) {
    return [=](const at::Tensor& value, const at::Tensor& beta, const Borders& borders) {
      const at::Tensor key = keys(value), query = key.slice(1, borders ? 0 : key.size(1) - queries);
      return read(query, key, value, beta, {.cu_seqlens = borders}).free_energy;
    };
  };
  const auto linear = [=](auto read) {
    return [=](const at::Tensor& value, const at::Tensor& beta, const Borders& borders) {
      return read(keys(value), keys(value), value, beta, {}, {.cu_seqlens = borders}).free_energy;
    };
  };
  const auto channel = [](auto read) {
    return [=](const at::Tensor& value, const at::Tensor& beta, const Borders& borders) {
      const at::Tensor weight = positive(value.sizes(), value);
      return read(value, beta, weight, -weight, {.cu_seqlens = borders}).free_energy;
    };
  };
  const auto ssm = [](auto read) {
    return [=](const at::Tensor& value, const at::Tensor& beta, const Borders& borders) {
      return read(value, beta, ssm_of(value), {.cu_seqlens = borders}).free_energy;
    };
  };
  const auto given_prior = [](const at::Tensor& value, const at::Tensor& beta, const Borders&) {
    return free_energy_read(positive({1, 2, value.size(1), value.size(1)}, value), value, beta).free_energy;
  };
  return {{"softmax_read", softmax(softmax_read, 9)},
          {"softmax_read of one query", softmax(softmax_read, 1)},
          {"attention_read", softmax(attention_read, 9), false},
          {"softmax_read_definition", softmax(softmax_read_definition, 9), false},
          {"linear_read", linear(linear_read)},
          {"linear_read_definition", linear(linear_read_definition), false},
          {"channel_read", channel(channel_read)},
          {"channel_read_definition", channel(channel_read_definition), false},
          {"ssm_read", ssm(ssm_read)},
          {"ssm_read_definition", ssm(ssm_read_definition), false},
          {"free_energy_read", given_prior, false, false}};
}

using ReadValues = KernelTest;
FEM_ON_EVERY_ISA(ReadValues);

constexpr int64_t kTokens = 9, kWidth = 19;  // a vector of every instruction set, and some more

at::Tensor values(at::ScalarType dtype = at::kFloat, int64_t tokens = kTokens) {
  return at::linspace(-1, 1, tokens * 2 * kWidth, at::kDouble).view({1, tokens, 2, kWidth}).to(dtype);
}
at::Tensor betas(at::ScalarType dtype = at::kFloat) { return at::full({2, kWidth}, 2.0, dtype); }

TEST_P(ReadValues, BetaOfZeroOrBelowIsRefused) {
  for (const NamedRead& read : every_read())
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble})
      for (const double wrong : {0.0, -0.5}) {
        const at::Tensor beta = betas(dtype);
        beta[1][18] = wrong;
        EXPECT_TRUE(
            fails_with("expected beta > 0, got " + std::string(wrong == 0 ? "0" : "-0.5") + " in channel 18 of head 1",
                       [&] { read.free_energy(values(dtype), beta, {}); }))
            << read.name << " " << dtype;
      }
  EXPECT_TRUE(
      fails_with("clip_value: expected beta > 0, got 0", [] { clip_value(values(), at::zeros({2, kWidth}), 40); }));
}

// NaN before and after it, in the same lane and in others, in the same token and in others.
TEST_P(ReadValues, NaNHidesNoValueBeyondTheRange) {
  for (const NamedRead& read : every_read()) {
    if (!read.checks_range) continue;
    for (const auto dtype : {at::kFloat, at::kBFloat16})
      for (const int64_t tokens : {kTokens, int64_t{1}})
        for (const int64_t channel : {0, 18})
          for (const int64_t nan_token : {int64_t{0}, tokens / 2, tokens - 1}) {
            const at::Tensor value = values(dtype, tokens);
            value.select(1, nan_token).fill_(NAN);
            value[0][tokens / 2][1][channel] = 64;
            EXPECT_TRUE(fails_with("|beta v| reaches 128", [&] { read.free_energy(value, betas(dtype), {}); }))
                << read.name << " " << dtype << ", NaN at " << nan_token << " of " << tokens;
          }
  }
}

TEST_P(ReadValues, NaNGivesNaN) {
  for (const NamedRead& read : every_read())
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
      const auto last_token = [&](const at::Tensor& value, const at::Tensor& beta) {
        return read.free_energy(value, beta, {}).select(1, -1).isnan();
      };
      const at::Tensor value = values(dtype), beta = betas(dtype), expected = at::zeros({1, 2, kWidth}, at::kBool);
      EXPECT_TRUE(at::equal(last_token(value, beta), expected)) << read.name << " " << dtype;
      expected[0][1][18] = true;
      value[0][4][1][18] = NAN;
      EXPECT_TRUE(at::equal(last_token(value, beta), expected)) << read.name << " " << dtype;
      beta[1][18] = NAN;
      EXPECT_TRUE(at::equal(last_token(values(dtype), beta), expected)) << read.name << " " << dtype << ", beta";
    }
}

TEST_P(ReadValues, Float16IsRefusedWithTheRemedy) {
  for (const NamedRead& read : every_read())
    EXPECT_TRUE(fails_with("got Half (float16 cannot hold exp(beta v): cast to bfloat16)", [&] {
      read.free_energy(values(at::kHalf), betas(at::kHalf), {});
    })) << read.name;
}

TEST_P(ReadValues, BordersThatAreNoneAreRefusedWithTheRemedy) {
  const std::vector<std::pair<std::vector<int64_t>, std::string>> wrong{
      {{0, 5, 3, 9}, "cu_seqlens must not decrease, got 5 before 3 at index 1"},
      {{1, 9}, "cu_seqlens must run from 0 to T=9, got 1 ... 9"},
      {{0, 8}, "cu_seqlens must run from 0 to T=9, got 0 ... 8"},
      {{0, int64_t{1} << 62, 9}, "cu_seqlens must not decrease"},
      {{0}, "expected cu_seqlens as int32 or int64 [n + 1], got Long [1]"}};
  for (const NamedRead& read : every_read()) {
    if (!read.packs) continue;
    for (const auto dtype : {at::kFloat, at::kDouble})
      for (const auto& [borders, sentence] : wrong) {
        const Borders given = at::tensor(borders, at::kLong);
        const auto call = [&] { read.free_energy(values(dtype), betas(dtype), given); };
        EXPECT_TRUE(fails_with(sentence, call)) << read.name << " " << dtype;
        EXPECT_TRUE(fails_with("; give the sequences' lengths summed up, a 0 before the first", call)) << read.name;
      }
  }
}

}  // namespace
}  // namespace fem::testing
