#include "data/sampler.h"

#include <ATen/ATen.h>

#include <set>

#include "io/temporary_folder.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

class Rows : public testing::TemporaryFolder {
 protected:
  // Tokens 0, 1, ... with a separator at every multiple of `document`, in three shards, so that rows cross files.
  TokenStream stream(int64_t size, int64_t document = 1000) {
    const TokenizerPtr tokenizer = byte_tokenizer();
    const std::filesystem::path files = folder / ("stream-" + std::to_string(size) + "-" + std::to_string(document));
    std::filesystem::create_directories(files);
    for (int64_t shard = 0; shard < 3; ++shard) {
      std::vector<int64_t> tokens;
      for (int64_t i = size * shard / 3; i < size * (shard + 1) / 3; ++i)
        tokens.push_back(i % document == 0 ? tokenizer->separator() : i % 251);
      write_token_shard(files, shard, 3, tokens, size, *tokenizer);
    }
    return TokenStream::open(files, tokenizer->fingerprint());
  }
};

TEST_F(Rows, EveryEpochReadsEachRowOnceFromAnOffsetOfItsOwn) {
  const TokenStream tokens = stream(1000);
  const Sampler sampler(tokens, 32, 7);
  ASSERT_EQ(sampler.rows_per_epoch(), (1000 - 32) / 32);
  std::set<int64_t> offsets;
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    std::vector<int64_t> begins;
    for (int64_t row = 0; row < sampler.rows_per_epoch(); ++row)
      begins.push_back(sampler.begin_of(epoch * sampler.rows_per_epoch() + row));
    std::vector<int64_t> sorted = begins;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_GE(sorted.front(), 0);
    ASSERT_LT(sorted.front(), 32);
    for (size_t i = 1; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], sorted[i - 1] + 32);
    ASSERT_LT(sorted.back() + 32, tokens.size());
    offsets.insert(sorted.front());
    for (int64_t& begin : begins) begin -= sorted.front();
    orders.insert(begins);
  }
  EXPECT_GT(offsets.size(), 5u);
  EXPECT_EQ(orders.size(), 10u);
}

TEST_F(Rows, TargetsAreTheTokensAfter) {
  const TokenStream tokens = stream(500);
  const Sampler sampler(tokens, 16, 1);
  const PackedRows rows = sampler.rows(3, 5);
  ASSERT_EQ(rows.tokens.sizes(), at::IntArrayRef({1, 80}));
  ASSERT_EQ(rows.targets.sizes(), at::IntArrayRef({1, 80}));
  for (int64_t r = 0; r < 5; ++r) {
    const int64_t begin = sampler.begin_of(3 + r);
    EXPECT_TRUE(at::equal(rows.tokens[0].slice(0, 16 * r, 16 * (r + 1)), tokens.read(begin, 16)));
    EXPECT_TRUE(at::equal(rows.targets[0].slice(0, 16 * r, 16 * (r + 1)), tokens.read(begin + 1, 16)));
  }
}

TEST_F(Rows, ASequenceBeginsAtEveryRowAndEveryDocument) {
  const TokenStream tokens = stream(300, 10);
  const Sampler sampler(tokens, 25, 2);
  const PackedRows rows = sampler.rows(0, 4);
  std::set<int64_t> expected{100};
  for (int64_t r = 0; r < 4; ++r)
    for (int64_t t = 0; t < 25; ++t)
      if (t == 0 || (sampler.begin_of(r) + t) % 10 == 0) expected.insert(25 * r + t);
  const at::Tensor got = rows.cu_seqlens;
  ASSERT_EQ(got.scalar_type(), at::kLong);
  EXPECT_EQ(std::vector<int64_t>(got.data_ptr<int64_t>(), got.data_ptr<int64_t>() + got.numel()),
            std::vector<int64_t>(expected.begin(), expected.end()));
}

TEST_F(Rows, AnySplitOverProcessesEqualsTheWhole) {
  const TokenStream tokens = stream(400);
  const Sampler sampler(tokens, 8, 3);
  const at::Tensor whole = sampler.rows(40, 12).tokens.view({12, 8});  // crosses an epoch
  ASSERT_LT(40 / sampler.rows_per_epoch(), 51 / sampler.rows_per_epoch());
  for (const int64_t ranks : {2, 3, 4})
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const at::Tensor part = sampler.rows(40 + rank, 12 / ranks, ranks).tokens.view({-1, 8});
      EXPECT_TRUE(at::equal(part, whole.slice(0, rank, 12, ranks)));
    }
}

TEST_F(Rows, GoesOnFromAnyRowAndDependsOnTheSeed) {
  const TokenStream tokens = stream(400);
  const Sampler first(tokens, 8, 3), again(tokens, 8, 3), other(tokens, 8, 4);
  for (const int64_t row : {130, 7, 51, 0, 49}) {
    EXPECT_EQ(again.begin_of(row), first.begin_of(row));
    EXPECT_TRUE(at::equal(again.rows(row, 3).tokens, first.rows(row, 3).tokens));
  }
  EXPECT_FALSE(at::equal(first.rows(0, 20).tokens, other.rows(0, 20).tokens));
}

TEST_F(Rows, ReadsTheShortestStreamAndRefusesAShorterOne) {
  const TokenStream tokens = stream(17);
  const Sampler sampler(tokens, 16, 0);
  EXPECT_EQ(sampler.rows_per_epoch(), 1);
  EXPECT_TRUE(at::equal(sampler.rows(5, 1).targets[0], tokens.read(1, 16)));
  EXPECT_TRUE(fails_with("a row of 17 tokens needs 18, but the text has 17", [&] { Sampler(tokens, 17, 0); }));
  EXPECT_TRUE(fails_with("expected rows of at least one token, got 0", [&] { Sampler(tokens, 0, 0); }));
  EXPECT_TRUE(fails_with("expected a row from 0, got -1", [&] { sampler.rows(-1, 1); }));
  EXPECT_TRUE(fails_with("expected at least one row", [&] { sampler.rows(0, 0); }));
}

TEST_F(Rows, PackedRowsReadAStreamInOrder) {
  const TokenStream tokens = stream(100, 30);
  const PackedRows rows = packed_rows(tokens, 5, 50, 20);
  EXPECT_TRUE(at::equal(rows.tokens[0], tokens.read(5, 50)));
  EXPECT_TRUE(at::equal(rows.targets[0], tokens.read(6, 50)));
  EXPECT_TRUE(at::equal(rows.cu_seqlens, at::tensor({0, 20, 25, 40, 50}, at::kLong)));  // a document begins at 30
  EXPECT_TRUE(fails_with("expected a range inside its 100 tokens", [&] { packed_rows(tokens, 50, 50, 20); }));
}

}  // namespace
}  // namespace fem
