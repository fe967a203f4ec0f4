#include "cli/run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "cli/complain.hpp"
#include "cli/devices.hpp"
#include "cli/elf_check.hpp"
#include "cli/rdma_command.hpp"
#include "cli/sysfs_tree.hpp"

namespace feroce::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kShim[] = "libferoce_preload.so";

struct Variable {
    const char* name;
    std::string value;
    char separator;  // Before what the variable holds already; 0 to replace that.
};

// Faults are for the program: the launcher's own calls meet none while this lives.
class WithoutFaults {
public:
    WithoutFaults() {
        if (const char* before = std::getenv(kName)) before_ = before;
        ::unsetenv(kName);
    }
    ~WithoutFaults() {
        if (before_) ::setenv(kName, before_->c_str(), 1);
    }
    WithoutFaults(const WithoutFaults&) = delete;
    WithoutFaults& operator=(const WithoutFaults&) = delete;

private:
    static constexpr char kName[] = "FEROCE_FAULTS";
    std::optional<std::string> before_;
};

std::vector<DeviceInfo> devices_without_faults() {
    const WithoutFaults none;
    return list_devices();
}

Result<std::vector<Variable>> environment(const std::string& folder) {
    const char* const setting = std::getenv("FEROCE_PCI");
    const Result<PciPlaces> places = PciPlaces::parse(setting == nullptr ? "" : setting);
    if (!places) return places.error();
    std::vector<Variable> out{{"LD_LIBRARY_PATH", folder, ':'}};
    const std::string shim = folder + "/" + kShim;
    Tree described = describe_tree(devices_without_faults(), *places);
    add_rdma_command(described);
    const Result<std::string> tree = install_tree(described);
    // Without the tree only programs that look at /sys or /dev themselves miss something.
    if (!tree || ::access(shim.c_str(), R_OK) != 0) return out;
    out.push_back({"LD_PRELOAD", shim, ':'});
    out.push_back({"FEROCE_SYSFS_ROOT", *tree, '\0'});
    // Where it is not set, the system has folders of its own, which would be lost.
    if (std::getenv("PATH") != nullptr)
        out.push_back({"PATH", fmt::format("{}/{}", *tree, kRdmaFolder), ':'});
    return out;
}

bool starts_with_entry(const std::string& list, const std::string& entry) {
    return list == entry || list.rfind(entry + ":", 0) == 0;
}

void apply(const Variable& variable) {
    const char* before = std::getenv(variable.name);
    std::string value = variable.value;
    if (variable.separator != '\0' && before != nullptr && before[0] != '\0') {
        if (starts_with_entry(before, value)) return;  // A run within a run.
        value += variable.separator + std::string(before);
    }
    ::setenv(variable.name, value.c_str(), 1);
}

std::string quoted(const std::string& text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

void warn_if_not_ours(const std::string& command, const std::string& folder) {
    // The dynamic linker splits both lists at colons, LD_PRELOAD at spaces too.
    if (folder.find_first_of(": ") != std::string::npos) {
        complain(fmt::format("{} does not use Feroce: {} has a colon or a space in its name",
                             command, folder));
        return;
    }
    const std::string program = find_program(command);
    if (const auto why = why_not_ours(program, folder))
        complain(fmt::format("{} does not use Feroce: it {}", command, *why));
}

}  // namespace

// FEROCE_PLACE: from an installed program to its libraries; the other is a build folder's.
std::string library_folder() {
    std::error_code error;
    const fs::path own = fs::read_symlink("/proc/self/exe", error);
    for (const char* place : {FEROCE_PLACE, "../lib"}) {
        const fs::path folder = (own.parent_path() / place).lexically_normal();
        if (fs::exists(folder / "libibverbs.so.1", error)) return folder.string();
    }
    return {};
}

int run(const std::vector<std::string>& command) {
    if (command.empty() || command[0].empty()) {
        complain("run needs a command: feroce run -- CMD ARGS");
        return 2;
    }
    const std::string folder = library_folder();
    if (folder.empty()) {
        complain("libibverbs.so.1 is not where it was installed");
        return 126;
    }
    const Result<std::vector<Variable>> variables = environment(folder);
    if (!variables) {
        complain(variables.error().why);
        return 126;
    }
    warn_if_not_ours(command[0], folder);
    for (const Variable& variable : *variables) apply(variable);
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    const int error = errno;
    complain(fmt::format("{}: {}", command[0], std::strerror(error)));
    return error == ENOENT ? 127 : 126;
}

int print_environment() {
    const std::string folder = library_folder();
    if (folder.empty()) {
        complain("libibverbs.so.1 is not where it was installed");
        return 1;
    }
    const Result<std::vector<Variable>> variables = environment(folder);
    if (!variables) {
        complain(variables.error().why);
        return 1;
    }
    for (const Variable& v : *variables) {
        const std::string rest =
            v.separator == '\0' ? "" : fmt::format("\"${{{0}:+{1}${0}}}\"", v.name, v.separator);
        fmt::print("export {}={}{}\n", v.name, quoted(v.value), rest);
    }
    return 0;
}

}  // namespace feroce::cli
