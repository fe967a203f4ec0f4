#include "cli/rdma_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "cli/complain.hpp"
#include "cli/devices.hpp"
#include "cli/elf_check.hpp"

namespace feroce::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kRdma[] = "rdma";

struct Object {
    std::string_view theirs;
    const char* ours;
};
// In the order in which `rdma` compares what it was given with the beginning of each.
constexpr Object kObjects[] = {{"dev", "dev"},      {"link", "link"},      {"resource", "res"},
                               {"system", nullptr}, {"statistic", "stat"}, {"monitor", nullptr},
                               {"help", nullptr}};

const char* our_object(std::string_view word) {
    for (const Object& object : kObjects)
        if (!word.empty() && object.theirs.substr(0, word.size()) == word) return object.ours;
    return nullptr;
}

// What `rdma` knows and we leave out changes only how much is told.
bool leaves_out(std::string_view option) {
    return option == "-d" || option == "--details" || option == "-r" || option == "--raw" ||
           option == "-dd" || option == "-f" || option == "--force";
}

std::vector<char*> arguments_of(std::vector<std::string>& words) {
    std::vector<char*> out;
    out.reserve(words.size() + 1);
    for (std::string& word : words) out.push_back(word.data());
    out.push_back(nullptr);
    return out;
}

// PATH without our folder, as it was before `feroce run`.
void forget_our_folder() {
    const char* path = std::getenv("PATH");
    std::string rest;
    for (std::string_view left = path == nullptr ? "" : path; !left.empty();) {
        const std::size_t colon = std::min(left.find(':'), left.size());
        const std::string folder(left.substr(0, colon));
        left.remove_prefix(std::min(colon + 1, left.size()));
        std::error_code error;
        if (fs::equivalent(fs::path(folder) / kRdma, "/proc/self/exe", error)) continue;
        rest += (rest.empty() ? "" : ":") + folder;
    }
    ::setenv("PATH", rest.c_str(), 1);
}

int answer_by_the_machine(std::vector<std::string> words) {
    forget_our_folder();
    if (find_program(kRdma).empty()) {
        complain(
            "of rdma's objects only dev, link, resource and statistic are answered here, and "
            "iproute2's rdma is not installed");
        return 127;
    }
    words.insert(words.begin(), kRdma);
    ::execvp(kRdma, arguments_of(words).data());
    complain(fmt::format("{}: {}", kRdma, std::strerror(errno)));
    return 126;
}

}  // namespace

void add_rdma_command(Tree& tree) {
    std::error_code error;
    const fs::path own = fs::read_symlink("/proc/self/exe", error);
    if (!error)
        tree[fmt::format("{}/{}", kRdmaFolder, kRdma)] = {.link = true, .text = own.string()};
}

bool is_rdma_command(const std::string& started_as) {
    return fs::path(started_as).filename() == kRdma;
}

std::optional<std::vector<std::string>> as_our_words(const std::vector<std::string>& words) {
    std::vector<std::string> out;
    std::size_t at = 0;
    for (; at < words.size() && words[at].rfind('-', 0) == 0; ++at) {
        const std::string& option = words[at];
        if (option == "-jp" || option == "-pj")
            out.insert(out.end(), {"-j", "-p"});
        else if (option == "-j" || option == "--json" || option == "-p" || option == "--pretty")
            out.push_back(option);
        else if (!leaves_out(option))
            return std::nullopt;
    }
    const char* object = at == words.size() ? nullptr : our_object(words[at]);
    if (object == nullptr) return std::nullopt;
    out.emplace_back(object);
    out.insert(out.end(), words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
    return out;
}

int answer_rdma(const std::vector<std::string>& words,
                const std::function<int(int argc, char** argv)>& ours) {
    auto asked = as_our_words(words);
    if (!asked) return answer_by_the_machine(words);
    forget_settings_of_programs();
    asked->insert(asked->begin(), "feroce");
    std::vector<char*> arguments = arguments_of(*asked);
    return ours(static_cast<int>(asked->size()), arguments.data());
}

}  // namespace feroce::cli
