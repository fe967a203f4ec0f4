// The tables of `feroce top`, and the same as JSON.
#pragma once

#include <array>
#include <cstddef>

#include "cli/output.hpp"
#include "cli/top/sample.hpp"
#include "cli/top/table.hpp"

namespace feroce::cli {

enum class TopView : std::uint8_t { Devices, Processes, QueuePairs, Sessions, Disks };
inline constexpr std::array kTopViews{TopView::Devices, TopView::Processes, TopView::QueuePairs,
                                      TopView::Sessions, TopView::Disks};
const char* name_of(TopView view);

// Not sorted: a table's sorted_by says by what it is best sorted.
Table table_of(const TopSample& sample, TopView view);
// Rates that are not known are null.
Json json_of(const TopSample& sample);

}  // namespace feroce::cli
