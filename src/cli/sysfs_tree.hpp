// The private tree that stands for /sys/class/infiniband* and /dev/infiniband under `feroce run`.
// It lies in the user's own directory under a name made of its contents, so launches share it and
// a change of addresses makes a new one. A program that a launcher became cannot clean up, so each
// launcher removes trees that no launch used for a day.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/devices.hpp"
#include "cli/pci_place.hpp"

namespace feroce::cli {

struct TreeEntry {
    bool link = false;
    std::string text;  // Of the file, or where the link leads.
};
using Tree = std::map<std::string, TreeEntry>;  // By path without a leading slash.

// With places, devices and their cards are where the kernel has those of PCI, and the classes have
// links to them.
Tree describe_tree(const std::vector<DeviceInfo>& devices, const PciPlaces& places = {});

// Where the tree is; made unless it is there already.
Result<std::string> install_tree(const Tree& tree);

}  // namespace feroce::cli
