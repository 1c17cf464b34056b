#include "data/series.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "data/csv.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

class SeriesFiles : public testing::TemporaryFolder {
 protected:
  Series series(const std::string& text, SeriesOptions options = {}) {
    options.csv = folder / "table.csv";
    write(options.csv, text);
    return read_series(options);
  }
  std::vector<double> column(const Series& series, int64_t place = 0) {
    const at::Tensor values = series.values.select(1, place).contiguous();
    return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
  }
  bool noted(const Series& series, const std::string& text) {
    return std::any_of(series.notes.begin(), series.notes.end(),
                       [&](const std::string& note) { return note.find(text) != std::string::npos; });
  }
};

using Values = std::vector<double>;
using Names = std::vector<std::string>;

TEST_F(SeriesFiles, AreReadWithEverySeparatorAndQuotes) {
  for (const char* separator : {",", ";", "\t"}) {
    const std::string s = separator;
    const Series read = series("date" + s + "\"a, b; c\"" + s + "d\r\n2020-01-01 00:00" + s + "1.5" + s + "\"2\"\r\n" +
                               "2020-01-01 01:00" + s + " -3e2 " + s + "+4\r\n");
    EXPECT_EQ(read.names, (Names{"a, b; c", "d"})) << s;
    EXPECT_EQ(column(read, 0), (Values{1.5, -300})) << s;
    EXPECT_EQ(column(read, 1), (Values{2, 4})) << s;
    EXPECT_EQ(read.step.units, 3600);
    EXPECT_EQ(read.stamp_text(1), "2020-01-01 01:00");
    EXPECT_EQ(read.stamp_text(4), "2020-01-01 04:00");
    EXPECT_TRUE(read.notes.empty());
  }
}

TEST_F(SeriesFiles, MayHaveDecimalCommasAndLatinNames) {
  const Series read =
      series("\xEF\xBB\xBFZeit;W/m\xB2\n01.07.2016 00:00;3,5\n02.07.2016 00:00;-1,25\n", {.time = "Zeit"});
  EXPECT_EQ(column(read), (Values{3.5, -1.25}));
  EXPECT_EQ(read.names[0], "W/m\xC2\xB2");
  EXPECT_EQ(read.stamp_text(2), "03.07.2016 00:00");
}

TEST_F(SeriesFiles, ArePackedOrNot) {
  const std::string text = "t,a\n0,1\n1,2\n";
  const std::filesystem::path packed = folder / "table.csv.gz";
  gzFile file = gzopen(packed.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  const Series plain = series(text), unpacked = read_series({.csv = packed});
  EXPECT_TRUE(plain.values.equal(unpacked.values));
  EXPECT_EQ(plain.checksum, unpacked.checksum);
  const std::string bytes = read(packed);
  write(packed, bytes.substr(0, bytes.size() - 9));
  EXPECT_TRUE(fails_with("is damaged, or its end is missing", [&] { read_series({.csv = packed}); }));
}

TEST_F(SeriesFiles, FillWhatIsMissingAndSaySo) {
  const Series read = series("date,a,b\n2020-01-01,,1\n2020-01-02,2,NaN\n2020-01-03,n/a,3\n");
  EXPECT_EQ(column(read, 0), (Values{2, 2, 2}));
  EXPECT_EQ(column(read, 1), (Values{1, 1, 3}));
  EXPECT_TRUE(noted(read, "column 'a': 2 missing values, each filled with the value before it"));
  EXPECT_TRUE(noted(read, "column 'a': all values are the same"));
  EXPECT_TRUE(noted(read, "column 'b': 1 missing values"));
}

TEST_F(SeriesFiles, TakeSentinelsForMissingWhereTheyAreFarFromAllOthers) {
  const std::string text = "date,wind,count\n2020-01-01,1,0\n2020-01-02,-9999,9999\n2020-01-03,3,8000\n";
  const Series read = series(text);
  EXPECT_EQ(column(read, 0), (Values{1, 1, 3}));
  EXPECT_EQ(column(read, 1), (Values{0, 9999, 8000}));
  EXPECT_TRUE(noted(read, "column 'wind': 1 values of -9999 stand for missing ones"));
  EXPECT_EQ(column(series(text, {.as_is = true}), 0), (Values{1, -9999, 3}));
}

TEST_F(SeriesFiles, LeaveTextOutUnlessItWasAskedFor) {
  const std::string text = "date,station,a\n2020-01-01,Jena,1\n2020-01-02,Bonn,2\n";
  const Series read = series(text);
  EXPECT_EQ(read.names, Names{"a"});
  EXPECT_TRUE(noted(read, "left out, because they hold text: station"));
  EXPECT_TRUE(fails_with("row 2, column 'station': expected a number, got 'Jena'",
                         [&] { series(text, {.columns = {"station", "a"}}); }));
  EXPECT_TRUE(fails_with("there is no column 'stations', which is to be read; did you mean station?",
                         [&] { series(text, {.columns = {"stations"}}); }));
}

TEST_F(SeriesFiles, NoteIrregularTimes) {
  const Series read = series("date,a\n2020-01-01,1\n2020-01-02,2\n2020-01-03,3\n2020-01-07,4\n");
  EXPECT_TRUE(noted(read, "1 of 3 rows are not 1 day after the row above: rows are taken as equally far apart"));
  const Series months = series("date,a\n2020-01-31,1\n2020-02-29,2\n2020-03-31,3\n2020-04-30,5\n");
  EXPECT_TRUE(months.notes.empty());
  EXPECT_EQ(months.notation->season(months.step), 12);
  EXPECT_EQ(months.stamp_text(4), "2020-05-30");
  const Series none = series("a,b\n1,2\n3,4\n");
  EXPECT_TRUE(noted(none, "there is no column of times"));
  EXPECT_EQ(none.names, (Names{"a", "b"}));
  EXPECT_EQ(none.stamp_text(5), "5");
}

TEST_F(SeriesFiles, SeasonsFollowFromTheTimes) {
  const auto season = [&](const std::string& first, const std::string& second) {
    const Series read = series("date,a\n" + first + ",1\n" + second + ",2\n");
    return read.notation->season(read.step);
  };
  EXPECT_EQ(season("2016-07-01 00:00:00", "2016-07-01 01:00:00"), 24);
  EXPECT_EQ(season("2016-07-01 00:00:00", "2016-07-01 00:15:00"), 96);
  EXPECT_EQ(season("2016-07-01", "2016-07-02"), 7);
  EXPECT_EQ(season("2016-07", "2016-08"), 12);
  EXPECT_EQ(season("1", "2"), 0);
}

TEST_F(SeriesFiles, ThatCannotBeUsedAreRefusedInOneSentence) {
  const auto refused = [&](const std::string& text, const std::string& sentence) {
    EXPECT_TRUE(fails_with(sentence, [&] { series(text); })) << shown(text);
  };
  refused("", "is empty; expected a header and rows of numbers");
  refused("\n\n\n", "has only empty lines");
  refused("date,a\n", "expected a header and at least 2 rows of numbers, got 0 rows");
  refused("date,a\n2020-01-01,1\n", "expected a header and at least 2 rows of numbers, got 1 row");
  refused("1,2\n3,4\n", "expected a header with the names of the columns, got numbers in the first row");
  refused("date,a,a\n2020-01-01,1,2\n", "two columns have the name 'a'");
  refused("date,a\n2020-01-01,1\n2020-01-02,many\n", "row 3, column 'a': expected a number, got 'many'");
  refused("date,a\n2020-01-01,1\n2020-01-02,2,3\n", "row 3 has 3 cells, but the first row 2");
  refused("date,a\n2020-01-02,1\n2020-01-01,2\n", "row 3: the time '2020-01-01' is before that of the row above");
  refused("date,a\n2020-01-01,1\n2020-01-01,2\n", "row 3: the time '2020-01-01' is that of the row above, too");
  refused("date,a\n2020-01-01,1\n2020-02-30,2\n", "row 3: expected a time written as that of the first row is");
  refused("date,a\nsoon,1\n", "row 2: expected a time such as 2016-07-01 00:15:00 in column 'date', got 'soon'");
  refused("date,a\n2020-01-01,1e300\n2020-01-02,1\n", "row 2, column 'a': '1e300' is too large to compute with");
  refused("date,a\n2020-01-01,1e999\n2020-01-02,1\n", "is too large to compute with");
  refused("date,a\n2020-01-01,-inf\n2020-01-02,1\n", "is too large to compute with");
  refused("date,a,b\n2020-01-01,1,\n2020-01-02,2,nan\n", "column 'b' has no value at all");
  refused("date,name\n2020-01-01,x\n2020-01-02,y\n", "no column holds numbers");
  refused("date,a\n2020-01-01,\"1\n2020-01-02,2\n", "there is a quote that is not closed");
  refused(std::string("date,a\n\0\1\2", 10), "is not text: it has zero bytes");
  std::string wide = "date", row = "2020-01-01";
  for (int i = 0; i < 10000; ++i) {
    wide += ",c" + std::to_string(i);
    row += ",1";
  }
  refused(wide + "\n" + row + "\n",
          "expected at most 4,096 columns of numbers, got 10,000; choose some with --columns");
  EXPECT_TRUE(fails_with("cannot be read: No such file", [&] { read_series({.csv = folder / "nowhere.csv"}); }));
  EXPECT_TRUE(fails_with("cannot be read: it is a folder", [&] { read_series({.csv = folder}); }));
  EXPECT_EQ(series(wide + "\n" + row + "\n" + "2020-01-02" + row.substr(10) + "\n", {.columns = {"c7", "c9"}}).names,
            (Names{"c7", "c9"}));
}

TEST_F(SeriesFiles, CellsAreReadAsTheyWereWritten) {
  const std::string name = "a \"b\", c;\td";
  EXPECT_EQ(csv_cell("plain"), "plain");
  EXPECT_EQ(series("date," + csv_cell(name) + "\n2020-01-01,1\n2020-01-02,2\n").names, Names{name});
}

TEST_F(SeriesFiles, AreAsTheyStandWhereThatIsAsked) {
  const Series read = series("date,a\n2020-01-02,1\n2020-01-01,2\n2020-01-01,3\n", {.as_is = true});
  EXPECT_EQ(column(read), (Values{1, 2, 3}));
}

}  // namespace
}  // namespace fem
