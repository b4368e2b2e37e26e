// What somebody meant who misspelt a word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fpfs {

// That of `words` which differs least from `word`: by a letter that is missing, too many, another or exchanged with the
// next, for each three that it has; or by its end, where that leaves one. '-' and '_' are alike. Empty when none is
// near; the first of several that are equally so.
std::string nearest_word(std::string_view word, const std::vector<std::string>& words);

// "unknown option '--limt=4'; did you mean --limit?": the option as it was given, those that there are, without hyphens,
// and what stands in front of them.
std::string describe_unknown_option(std::string_view given, const std::vector<std::string>& names,
                                    std::string_view prefix);

}  // namespace fpfs
