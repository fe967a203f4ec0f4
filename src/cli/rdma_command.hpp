// iproute2's `rdma` asks the kernel, which knows nothing of our devices. Under `feroce run` a link
// of its name to this program comes first in PATH, and what both know is answered here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/sysfs_tree.hpp"

namespace feroce::cli {

inline constexpr char kRdmaFolder[] = "bin";  // In the tree.

void add_rdma_command(Tree& tree);

// Whether this program was started under that name.
bool is_rdma_command(const std::string& started_as);

// The same question to `feroce`: objects of `rdma` may be cut short. Nothing: not ours to answer.
std::optional<std::vector<std::string>> as_our_words(const std::vector<std::string>& words);

// By `ours`, which takes a program's arguments, or by the machine's own `rdma`.
int answer_rdma(const std::vector<std::string>& words,
                const std::function<int(int argc, char** argv)>& ours);

}  // namespace feroce::cli
