// What a board says of single letters and of the paper's order.
#include <algorithm>
#include <cmath>

#include "bench/paired.h"
#include "report/board.h"
#include "util/table.h"

namespace fem {
namespace {

constexpr size_t kMostTold = 3;  // reversals in a sentence

// Of places there is none.
std::optional<double> published_difference(const Board& board, const BoardCell& a, const BoardCell& b) {
  if (board.places || !a.published.value || !b.published.value) return std::nullopt;
  return *b.published.value - *a.published.value;
}

std::string with_sign(double value, int digits) {
  const std::string text = fixed(value, digits);
  return value < 0 ? "−" + text.substr(1) : "+" + text;
}

std::string count_of(size_t number, const std::string& one, const std::string& many) {
  return std::to_string(number) + " " + (number == 1 ? one : many);
}

// "gla over softmax (paper +1.2, here −3.1 ± 0.8, 3 seeds)"; a single seed has no interval.
std::string text_of(const Board& board, const Reversal& reversal) {
  return reversal.better + " over " + reversal.worse + " (" +
         (reversal.published ? "paper " + with_sign(*reversal.published, board.digits) + ", " : "") + "here " +
         with_sign(reversal.here.mean, board.digits) +
         (reversal.here.half_width ? " ± " + fixed(*reversal.here.half_width, board.digits) : "") + ", " +
         count_of(reversal.here.count, board.timed ? "round" : "seed", board.timed ? "rounds" : "seeds") + ")";
}

// Of the seeds that both have; some may have been added to one of them. As they are if there is none.
std::pair<SeedValues, SeedValues> on_common_seeds(const SeedValues& a, const SeedValues& b) {
  std::pair<SeedValues, SeedValues> common;
  for (const auto& [seed, value] : a)
    if (const auto other = b.find(seed); other != b.end())
      common.first[seed] = value, common.second[seed] = other->second;
  return common.first.empty() ? std::pair(a, b) : common;
}

}  // namespace

double middle_of(const Board& board, const SeedValues& values) {
  std::vector<double> all;
  for (const auto& [seed, value] : values) all.push_back(value);
  return board.timed ? bench::median(all) : summarize(all).mean;
}

Interval difference(const SeedValues& a, const SeedValues& b) {
  std::vector<double> differences;
  for (const auto& [seed, value] : b)
    if (const auto other = a.find(seed); other != a.end()) differences.push_back(value - other->second);
  return interval_of(differences);
}

std::vector<Effect> effects_of(const Board& board) {
  std::vector<Effect> effects;
  for (const Ladder& ladder : board.ladders) {
    for (size_t i = 0; i < ladder.steps.size(); ++i) {
      const BoardRow *from = board.row(ladder.rungs[i]), *to = board.row(ladder.rungs[i + 1]);
      if (!from || !to) continue;
      for (size_t column = 0; column < board.columns.size(); ++column) {
        const BoardCell &a = from->cells[column], &b = to->cells[column];
        const Interval interval = difference(a.values, b.values);
        if (interval.count > 0)
          effects.push_back({ladder.title, ladder.steps[i], from->label, to->label, column, interval,
                             published_difference(board, a, b)});
      }
    }
  }
  return effects;
}

size_t Agreement::certain() const {
  return static_cast<size_t>(
      std::count_if(reversed.begin(), reversed.end(), [](const Reversal& one) { return one.certain; }));
}

std::vector<Agreement> agreements_of(const Board& board) {
  std::vector<Agreement> agreements;
  const double sign = board.larger_is_better ? 1 : -1;
  for (size_t column = 0; column < board.columns.size(); ++column) {
    std::vector<const BoardRow*> rows;
    std::vector<double> ours, published;
    for (const BoardRow& row : board.rows) {
      const BoardCell& cell = row.cells[column];
      if (cell.values.empty() || !cell.published.value) continue;
      rows.push_back(&row);
      ours.push_back(middle_of(board, cell.values));
      published.push_back(*cell.published.value);
    }
    if (rows.size() < 2) continue;
    // A place is better the smaller it is.
    if (board.places && board.larger_is_better)
      for (double& place : published) place = -place;
    Agreement agreement{.column = column,
                        .rows = rows.size(),
                        .least = *std::min_element(ours.begin(), ours.end()),
                        .most = *std::max_element(ours.begin(), ours.end()),
                        .spearman = spearman(ours, published),
                        .kendall = kendall(ours, published)};
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t j = 0; j < rows.size(); ++j) {
        if (sign * (published[i] - published[j]) <= 0) continue;  // i is the better one in the paper
        ++agreement.pairs;
        const BoardCell &better = rows[i]->cells[column], &worse = rows[j]->cells[column];
        const auto [own, other] = on_common_seeds(better.values, worse.values);
        const double here = sign * (middle_of(board, own) - middle_of(board, other));
        agreement.same += here > 0;
        if (here >= 0) continue;
        const Interval interval = difference(worse.values, better.values);
        agreement.reversed.push_back({rows[i]->label, rows[j]->label, published_difference(board, worse, better),
                                      interval, interval.is_apart_from_zero() && sign * interval.mean < 0});
      }
    }
    std::stable_sort(agreement.reversed.begin(), agreement.reversed.end(), [](const Reversal& a, const Reversal& b) {
      return std::pair(a.certain, std::abs(a.here.mean)) > std::pair(b.certain, std::abs(b.here.mean));
    });
    agreements.push_back(std::move(agreement));
  }
  return agreements;
}

std::string sentence_of(const Board& board, const Agreement& agreement) {
  if (agreement.pairs == 0)
    return "The paper has these " + count_of(agreement.rows, "row", "rows") + " equal; here they are from " +
           fixed(agreement.least, board.digits) + " to " + fixed(agreement.most, board.digits) + ".";
  const std::string ordered =
      "Of " + count_of(agreement.pairs, "pair that the paper orders, ", "pairs that the paper orders, ");
  if (agreement.same == agreement.pairs)
    return (agreement.pairs == 1 ? "The one pair that the paper orders stands"
                                 : "All " + std::to_string(agreement.pairs) + " pairs that the paper orders stand") +
           std::string(" in the same order here.");
  std::string text = ordered + std::to_string(agreement.same) + " stand in the same order here and " +
                     std::to_string(agreement.reversed.size()) + " the other way round";
  const size_t equal = agreement.pairs - agreement.same - agreement.reversed.size();
  if (equal > 0) text += ", " + std::to_string(equal) + " are equal";
  const size_t certain = agreement.certain();
  if (agreement.reversed.empty()) return text + ".";
  if (certain == 0) return text + "; no 95 % interval of a reversed difference leaves out 0.";
  text += "; in " + std::to_string(certain) + " of these the 95 % interval leaves out 0: ";
  const size_t told = std::min(certain, kMostTold);
  for (size_t i = 0; i < told; ++i) text += (i ? "; " : "") + text_of(board, agreement.reversed[i]);
  if (told < certain) text += "; and " + std::to_string(certain - told) + " more";
  return text + ".";
}

}  // namespace fem
