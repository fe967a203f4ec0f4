// What the page of `feroce web` is told, as one JSON document: what `feroce top -j` prints, what
// `feroce explain -j` prints, and who is connected to whom.
//
// Bounded: of long lists the rows that matter most, and how many more there are. A page that gets
// megabytes every second is of no use, and 10,000 queue pairs are as many rows as nobody reads.
#pragma once

#include <cstddef>
#include <string>

#include "cli/output.hpp"
#include "cli/top/sample.hpp"

namespace feroce::cli {

inline constexpr std::size_t kQpRowsMax = 400;
inline constexpr std::size_t kFailureRowsMax = 100;

struct WebFacts {
    TopSample sample;
    Json failures = Json::array();  // explanations() of the same look.
    std::string unknown;            // explanation_gap().
    std::string machine;            // Its name.
    std::string user;
    std::string capture;  // The file of packets; empty: none.
};

Json document_of(WebFacts facts);

}  // namespace feroce::cli
