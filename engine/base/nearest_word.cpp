#include "engine/base/nearest_word.h"

#include <algorithm>

#include <fmt/format.h>

namespace fpfs {

namespace {

constexpr size_t kLettersPerMistake = 3;
constexpr size_t kBeginningMin = 3;

bool is_alike(char a, char b) {
  const auto plain = [](char c) { return c == '_' ? '-' : c; };
  return plain(a) == plain(b);
}

// Of optimal string alignment: Levenshtein's, with neighbours that are exchanged counted once.
size_t distance_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> costs(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) costs[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) costs[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      costs[i][j] = std::min(
          {costs[i - 1][j] + 1, costs[i][j - 1] + 1, costs[i - 1][j - 1] + (is_alike(a[i - 1], b[j - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && is_alike(a[i - 1], b[j - 2]) && is_alike(a[i - 2], b[j - 1]))
        costs[i][j] = std::min(costs[i][j], costs[i - 2][j - 2] + 1);
    }
  return costs[a.size()][b.size()];
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& words) {
  std::string nearest;
  size_t least = std::max<size_t>(1, word.size() / kLettersPerMistake) + 1;
  for (const std::string& candidate : words) {
    const size_t distance = distance_between(word, candidate);
    if (distance >= least || distance >= candidate.size()) continue;
    least = distance;
    nearest = candidate;
  }
  if (!nearest.empty() || word.size() < kBeginningMin) return nearest;
  for (const std::string& candidate : words) {
    if (!candidate.starts_with(word)) continue;
    if (!nearest.empty() && candidate != nearest) return "";
    nearest = candidate;
  }
  return nearest;
}

std::string describe_unknown_option(std::string_view given, const std::vector<std::string>& names,
                                    std::string_view prefix) {
  const size_t begin = std::min(given.find_first_not_of('-'), given.size());  // "---" has nothing but those
  const std::string_view name = given.substr(begin, given.find('=', begin) - begin);
  const std::string meant = nearest_word(name, names);
  const bool says_nothing = meant.empty() || (prefix.empty() && meant == name);
  return fmt::format("unknown option '{}'{}", given,
                     says_nothing ? "" : fmt::format("; did you mean {}{}?", prefix, meant));
}

}  // namespace fpfs
