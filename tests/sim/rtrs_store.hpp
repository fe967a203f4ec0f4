// What the simulated server of sessions keeps, and the judge of what it is told: cells that are
// written whole, each write with the version that follows the last. The store outlives servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace feroce::sim {

struct CellMessage {
    std::uint32_t cell = 0;
    std::uint32_t version = 0;  // Of a write; a read tells the version that it expects.
};

void fill_cell(std::span<std::byte> out, const CellMessage& what);

class CellStore {
public:
    // A server begins: what an earlier one executed it cannot know of.
    void begin_life() { executed_.clear(); }

    // At the end of a write's execution.
    void write(const CellMessage& message, std::span<const std::byte> data);
    void read(const CellMessage& message, std::span<std::byte> data);

    // What must not happen, in words; empty if it did not.
    const std::string& verdict() const { return verdict_; }
    int executions() const { return executions_; }
    int repeated() const { return repeated_; }        // Executed twice in one life of the server.
    int overwritten() const { return overwritten_; }  // An older version over a newer one.

private:
    void blame(const char* what, const CellMessage& message);

    struct Cell {
        std::uint32_t version = 0;
        std::vector<std::byte> data;
    };
    std::map<std::uint32_t, Cell> cells_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, int> executed_;
    std::string verdict_;
    int executions_ = 0;
    int repeated_ = 0;
    int overwritten_ = 0;
};

}  // namespace feroce::sim
