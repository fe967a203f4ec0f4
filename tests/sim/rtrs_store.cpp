#include "sim/rtrs_store.hpp"

#include <algorithm>

namespace feroce::sim {

void fill_cell(std::span<std::byte> out, const CellMessage& what) {
    std::uint64_t state = std::uint64_t{what.cell} << 32 | what.version;
    for (std::byte& byte : out) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        byte = static_cast<std::byte>(state >> 56);
    }
}

void CellStore::blame(const char* what, const CellMessage& message) {
    if (!verdict_.empty()) return;
    verdict_ = std::string(what) + ": cell " + std::to_string(message.cell) + " version " +
               std::to_string(message.version);
}

void CellStore::write(const CellMessage& message, std::span<const std::byte> data) {
    ++executions_;
    std::vector<std::byte> expected(data.size());
    fill_cell(expected, message);
    if (!std::equal(data.begin(), data.end(), expected.begin()))
        blame("the data of a write changed while it was executed", message);
    Cell& cell = cells_[message.cell];
    if (message.version < cell.version) {
        ++overwritten_;
        blame("an old write came after a newer one", message);
    }
    if (++executed_[{message.cell, message.version}] > 1) {
        ++repeated_;
        blame("a write was executed twice", message);
    }
    cell.version = message.version;
    cell.data.assign(data.begin(), data.end());
}

void CellStore::read(const CellMessage& message, std::span<std::byte> data) {
    const Cell& cell = cells_[message.cell];
    if (cell.version != message.version) blame("a completed write is not there", message);
    const std::size_t size = std::min(data.size(), cell.data.size());
    std::copy_n(cell.data.begin(), size, data.begin());
    std::fill(data.begin() + static_cast<std::ptrdiff_t>(size), data.end(), std::byte{0});
}

}  // namespace feroce::sim
