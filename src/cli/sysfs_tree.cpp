#include "cli/sysfs_tree.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/invented_pci.hpp"
#include "base/link_speed.hpp"
#include "process/state_page.hpp"

namespace feroce::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "sysfs-";
constexpr std::size_t kGidTableLength = 64;  // As ibv_query_port says.
constexpr auto kUnusedMax = std::chrono::hours(24);

std::string gid_text(const Gid& gid) {
    std::string out;
    for (std::size_t i = 0; i < 16; i += 2)
        out += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid.raw[i], gid.raw[i + 1]);
    return out;
}

void add_port(const DeviceInfo& device, const std::string& base, Tree& tree) {
    const auto file = [&](const std::string& name, const std::string& text) {
        tree[base + name] = {.link = false, .text = text + "\n"};
    };
    file("state", device.up ? "4: ACTIVE" : "1: DOWN");
    file("phys_state", device.up ? "5: LinkUp" : "3: Disabled");
    file("link_layer", "Ethernet");
    file("lid", "0x0");
    file("lid_mask_count", "0");
    file("sm_lid", "0x0");
    file("sm_sl", "0");
    file("cap_mask", "0x04010000");
    file("rate", link_speed(device.speed_mbps).text);
    file("pkeys/0", "0xffff");
    for (std::size_t i = 0; i < kGidTableLength; ++i) {
        const bool used = i < device.gids.size();
        file(fmt::format("gids/{}", i), gid_text(used ? device.gids[i] : Gid{}));
        // The kernel answers EINVAL for an entry that is empty; a plain file can only say nothing.
        const auto attribute = [&](const char* name, const std::string& text) {
            tree[fmt::format("{}gid_attrs/{}/{}", base, name, i)] = {
                .link = false, .text = used ? text + "\n" : ""};
        };
        attribute("types", "RoCE v2");
        attribute("ndevs", device.interface);
    }
}

// What the interface's own card says, or what stands for it where there is none.
std::string card_attribute(const std::string& interface, const char* name,
                           const std::string& without) {
    std::ifstream file("/sys/class/net/" + interface + "/device/" + name);
    std::string line;
    return std::getline(file, line) && !line.empty() ? line : without;
}

// Of the processors that there are: words of 32 bits, the highest first.
std::string all_processors() {
    const long count = std::max(::sysconf(_SC_NPROCESSORS_CONF), 1L);
    std::string out;
    for (long word = (count - 1) / 32; word >= 0; --word) {
        const long left = std::min(count - word * 32, 32L);
        const std::uint32_t mask = left == 32 ? ~0u : (1u << left) - 1;
        out += out.empty() ? fmt::format("{:x}", mask) : fmt::format(",{:08x}", mask);
    }
    return out;
}

// Where the three folders of a device are, each with a slash behind it.
struct Folders {
    std::string device;
    std::string verbs;
    std::string card;
};

// As in the kernel's tree for a card: the folders are at its place, and the classes have links.
Folders on_the_bus(const DeviceInfo& device, const PciAddress& address, Tree& tree) {
    const auto link = [&](const std::string& path, const std::string& target) {
        tree[path] = {.link = true, .text = target};
    };
    // Below a bridge of the invented domain, whatever the address: programs that follow links step
    // by step come by these paths, and the preload library knows them by the domain.
    const std::string bus =
        fmt::format("devices/pci{}{:02x}/", kInventedPciDomainText, address.bus);
    const std::string card = bus + address.text() + "/";
    const std::string named = "infiniband/" + device.name;
    const std::string verbs = "infiniband_verbs/" + device.verbs_name;
    link("sys/class/" + named, "../../" + card + named);
    link("sys/class/" + verbs, "../../" + card + verbs);
    link("sys/" + card + named + "/device", "../../../" + address.text());
    link("sys/" + card + verbs + "/device", "../../../" + address.text());
    link("sys/" + card + "subsystem", "../../../bus/pci");
    link("sys/bus/pci/devices/" + address.text(), "../../../" + bus + address.text());
    const std::string bus_itself = "pci_bus/" + address.bus_name();
    link("sys/class/" + bus_itself, "../../" + bus + bus_itself);
    const auto file = [&](const std::string& path, const std::string& text) {
        tree["sys/" + path] = {.link = false, .text = text + "\n"};
    };
    file(bus + bus_itself + "/cpuaffinity", all_processors());
    file(card + "uevent", "PCI_SLOT_NAME=" + address.text());
    for (const std::string kind : {"max", "current"}) {
        file(card + kind + "_link_speed", "16.0 GT/s PCIe");
        file(card + kind + "_link_width", "16");
    }
    return {.device = "sys/" + card + named + "/",
            .verbs = "sys/" + card + verbs + "/",
            .card = "sys/" + card};
}

Folders without_a_bus(const DeviceInfo& device) {
    const std::string base = "sys/class/infiniband/" + device.name + "/";
    return {.device = base,
            .verbs = "sys/class/infiniband_verbs/" + device.verbs_name + "/",
            .card = base + "device/"};
}

// Empty where the interface has no card.
std::string card_path(const std::string& interface) {
    std::error_code error;
    return fs::canonical("/sys/class/net/" + interface + "/device", error).string();
}

void add_card(const DeviceInfo& device, const std::string& base, Tree& tree) {
    const std::vector<std::pair<const char*, std::string>> attributes{
        {"vendor", "0x0000"},
        {"device", "0x0001"},
        {"subsystem_vendor", "0x0000"},
        {"subsystem_device", "0x0000"},
        {"class", "0x020000"},
        {"numa_node", "-1"},
        {"local_cpus", all_processors()}};
    for (const auto& [name, without] : attributes)
        tree[base + name] = {.link = false,
                             .text = card_attribute(device.interface, name, without) + "\n"};
    tree[base + "net/" + device.interface] = {.link = true,
                                              .text = "/sys/class/net/" + device.interface};
}

void add_device(const DeviceInfo& device, std::size_t index, const PciPlaces& places, Tree& tree) {
    const auto address = places.of(index, card_path(device.interface));
    const Folders folders = address ? on_the_bus(device, *address, tree) : without_a_bus(device);
    const std::string& base = folders.device;
    const auto file = [&](const std::string& path, const std::string& text) {
        tree[path] = {.link = false, .text = text + "\n"};
    };
    file(base + "node_type", "1: CA");
    file(base + "node_guid", guid_text(device.guid));
    file(base + "sys_image_guid", guid_text(device.guid));
    file(base + "node_desc", "feroce");
    file(base + "fw_ver", FEROCE_VERSION);
    file(base + "board_id", "feroce");
    file(base + "hw_rev", "1");
    file(base + "hca_type", "feroce");
    add_card(device, folders.card, tree);
    add_port(device, base + "ports/1/", tree);
    file(folders.verbs + "ibdev", device.name);
    file(folders.verbs + "abi_version", "1");
    file(folders.verbs + "dev", fmt::format("231:{}", 192 + index));
    // Programs only ask whether it is a character device that they may read and write.
    tree["dev/infiniband/" + device.verbs_name] = {.link = true, .text = "/dev/null"};
}

// FNV-1a: a name, not a promise; the directory is ours alone.
std::uint64_t hash_of(const Tree& tree) {
    std::uint64_t hash = 0xcbf2'9ce4'8422'2325;
    const auto mix = [&hash](const std::string& text) {
        for (const char c : text + '\0')
            hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
    };
    for (const auto& [path, entry] : tree) {
        mix(path);
        mix(entry.text);
    }
    return hash;
}

bool write_tree(const Tree& tree, const fs::path& root) {
    std::error_code error;
    for (const auto& [path, entry] : tree) {
        const fs::path full = root / path;
        fs::create_directories(full.parent_path(), error);
        if (error) return false;
        if (entry.link) {
            fs::create_symlink(entry.text, full, error);
            if (error) return false;
            continue;
        }
        std::ofstream file(full);
        file << entry.text;
        file.close();
        if (!file) return false;
    }
    return true;
}

void remove_unused(const std::string& directory) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
        if (entry.path().filename().string().rfind(kPrefix, 0) != 0) continue;
        const auto used = entry.last_write_time(error);
        if (!error && fs::file_time_type::clock::now() - used > kUnusedMax)
            fs::remove_all(entry.path(), error);
    }
}

}  // namespace

Tree describe_tree(const std::vector<DeviceInfo>& devices, const PciPlaces& places) {
    Tree tree;
    for (std::size_t i = 0; i < devices.size(); ++i) add_device(devices[i], i, places, tree);
    tree["sys/class/infiniband_verbs/abi_version"] = {.link = false, .text = "6\n"};
    tree["sys/module/nvidia_peermem/version"] = {.link = false, .text = "feroce\n"};
    tree["dev/infiniband/rdma_cm"] = {.link = true, .text = "/dev/null"};
    return tree;
}

Result<std::string> install_tree(const Tree& tree) {
    const Result<std::string> directory = process::user_directory(::geteuid());
    if (!directory) return directory.error();
    const std::string root = fmt::format("{}/{}{:016x}", *directory, kPrefix, hash_of(tree));
    // Says that it is in use, before anybody can think otherwise.
    if (::utimensat(AT_FDCWD, root.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0) return root;
    remove_unused(*directory);
    const std::string draft = fmt::format("{}/.tree-{}", *directory, ::getpid());
    std::error_code error;
    fs::remove_all(draft, error);
    bool made = write_tree(tree, draft);
    // Fails if another launcher was faster; then its tree is as good.
    if (made && ::rename(draft.c_str(), root.c_str()) != 0)
        made = errno == EEXIST || errno == ENOTEMPTY;
    fs::remove_all(draft, error);
    if (!made) return Error{ENOSPC, "the tree for /sys/class/infiniband cannot be written"};
    return root;
}

}  // namespace feroce::cli
