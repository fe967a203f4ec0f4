#include "cli/elf_check.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

namespace feroce::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kLibrary[] = "libibverbs.so.1";
#ifdef __aarch64__
constexpr char kSystemFolders[] =
    "/usr/local/lib:/lib/aarch64-linux-gnu:/usr/lib/aarch64-linux-gnu:/lib64:/usr/lib64:/usr/lib";
#else
constexpr char kSystemFolders[] =
    "/usr/local/lib:/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib64:/usr/lib";
#endif
constexpr std::size_t kHeadersMax = 1024;   // More than any linker makes.
constexpr std::size_t kDynamicMax = 65536;  // Bytes of the dynamic section that we read.

// The few words of an ELF file that decide; reads beyond its end give nothing.
class ElfFile {
public:
    explicit ElfFile(const std::string& path) : file_(path, std::ios::binary) {
        read(0, header_);
        is_elf_ = std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0;
        if (!is_elf_ || !is_native()) return;
        const std::size_t count = std::min<std::size_t>(header_.e_phnum, kHeadersMax);
        segments_.resize(count);
        for (std::size_t i = 0; i < count; ++i)
            read(header_.e_phoff + i * sizeof(Elf64_Phdr), segments_[i]);
    }

    bool is_elf() const { return is_elf_; }
    bool is_native() const { return header_.e_ident[EI_CLASS] == ELFCLASS64; }
    bool is_static() const { return find(PT_INTERP) == nullptr; }

    // The texts of entries like DT_NEEDED or DT_RPATH.
    std::vector<std::string> texts_of(std::int64_t tag) {
        const Elf64_Phdr* dynamic = find(PT_DYNAMIC);
        if (dynamic == nullptr) return {};
        std::uint64_t strings = 0;
        std::vector<std::uint64_t> offsets;
        const std::size_t size = std::min<std::size_t>(dynamic->p_filesz, kDynamicMax);
        for (std::size_t at = 0; at + sizeof(Elf64_Dyn) <= size; at += sizeof(Elf64_Dyn)) {
            Elf64_Dyn entry{};
            if (!read(dynamic->p_offset + at, entry) || entry.d_tag == DT_NULL) break;
            if (entry.d_tag == DT_STRTAB) strings = file_offset(entry.d_un.d_ptr);
            if (entry.d_tag == tag) offsets.push_back(entry.d_un.d_val);
        }
        std::vector<std::string> out;
        for (const std::uint64_t offset : offsets) {
            if (strings == 0) break;
            file_.clear();
            file_.seekg(static_cast<std::streamoff>(strings + offset));
            std::getline(file_, out.emplace_back(), '\0');
        }
        return out;
    }
    // The colon separated list of DT_RPATH or DT_RUNPATH; empty if there is none.
    std::string text_of(std::int64_t tag) {
        const std::vector<std::string> texts = texts_of(tag);
        return texts.empty() ? "" : texts.back();
    }

private:
    template <class T>
    bool read(std::uint64_t offset, T& into) {
        file_.clear();
        file_.seekg(static_cast<std::streamoff>(offset));
        return static_cast<bool>(file_.read(reinterpret_cast<char*>(&into), sizeof into));
    }
    const Elf64_Phdr* find(std::uint32_t type) const {
        for (const Elf64_Phdr& segment : segments_)
            if (segment.p_type == type) return &segment;
        return nullptr;
    }
    std::uint64_t file_offset(std::uint64_t address) const {
        for (const Elf64_Phdr& s : segments_)
            if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz)
                return address - s.p_vaddr + s.p_offset;
        return 0;
    }

    std::ifstream file_;
    Elf64_Ehdr header_{};
    bool is_elf_ = false;
    std::vector<Elf64_Phdr> segments_;
};

std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> out;
    for (std::size_t at = 0; at <= list.size();) {
        const std::size_t end = std::min(list.find(':', at), list.size());
        out.push_back(list.substr(at, end - at));
        at = end + 1;
    }
    return out;
}

std::string expand_origin(std::string folder, const std::string& program) {
    const std::string origin = fs::path(program).parent_path().string();
    for (const std::string word : {"${ORIGIN}", "$ORIGIN"})
        for (std::size_t at; (at = folder.find(word)) != std::string::npos;)
            folder.replace(at, word.size(), origin);
    return folder;
}

// The kernel then makes the linker forget LD_LIBRARY_PATH and LD_PRELOAD.
bool gains_privileges(const std::string& program) {
    struct stat info {};
    if (::stat(program.c_str(), &info) != 0) return false;
    const bool other_user = (info.st_mode & S_ISUID) != 0 && info.st_uid != ::getuid();
    const bool other_group = (info.st_mode & S_ISGID) != 0 && info.st_gid != ::getgid();
    const bool capabilities =
        ::getuid() != 0 && ::getxattr(program.c_str(), "security.capability", nullptr, 0) > 0;
    return other_user || other_group || capabilities;
}

// DT_RPATH goes before LD_LIBRARY_PATH, unless there is a DT_RUNPATH, which goes after.
std::optional<std::string> foreign_rpath(ElfFile& elf, const std::string& program,
                                         const std::string& library_folder) {
    if (!elf.text_of(DT_RUNPATH).empty()) return std::nullopt;
    std::error_code error;
    for (const std::string& entry : split(elf.text_of(DT_RPATH))) {
        const fs::path folder = expand_origin(entry, program);
        if (folder.empty() || !fs::exists(folder / kLibrary, error)) continue;
        if (fs::equivalent(folder, library_folder, error)) return std::nullopt;
        return folder.string();
    }
    return std::nullopt;
}

}  // namespace

std::string find_program(const std::string& command) {
    if (command.find('/') != std::string::npos) return command;
    const char* path = std::getenv("PATH");
    for (const std::string& folder : split(path != nullptr ? path : "/bin:/usr/bin")) {
        std::string candidate = (folder.empty() ? "." : folder) + "/" + command;
        std::error_code error;
        if (fs::is_regular_file(candidate, error) && ::access(candidate.c_str(), X_OK) == 0)
            return candidate;
    }
    return {};
}

std::optional<std::string> why_not_ours(const std::string& program,
                                        const std::string& library_folder) {
    std::error_code error;
    const std::string real = fs::canonical(program, error).string();
    if (error) return std::nullopt;
    ElfFile elf(real);
    if (!elf.is_elf()) return std::nullopt;
    if (!elf.is_native()) return "is not a 64-bit program";
    if (elf.is_static()) return "is statically linked";
    if (gains_privileges(real)) return "runs with the privileges of another user (setuid)";
    if (const auto folder = foreign_rpath(elf, real, library_folder))
        return "takes its libraries from " + *folder + " (RPATH)";
    return std::nullopt;
}

bool needs_verbs(const std::string& program) {
    std::error_code error;
    ElfFile elf(fs::canonical(program, error).string());
    if (error || !elf.is_elf() || !elf.is_native()) return false;
    const std::vector<std::string> needed = elf.texts_of(DT_NEEDED);
    return std::find(needed.begin(), needed.end(), kLibrary) != needed.end();
}

std::string verbs_library_of(const std::string& program) {
    std::error_code error;
    const std::string real = fs::canonical(program, error).string();
    ElfFile elf(real);
    const bool native = !error && elf.is_elf() && elf.is_native();
    const std::string runpath = native ? elf.text_of(DT_RUNPATH) : "";
    const std::string rpath = native && runpath.empty() ? elf.text_of(DT_RPATH) : "";
    const char* path = std::getenv("LD_LIBRARY_PATH");
    for (const std::string& list :
         {rpath, std::string(path != nullptr ? path : ""), runpath, std::string(kSystemFolders)}) {
        for (const std::string& entry : split(list)) {
            const fs::path library = fs::path(expand_origin(entry, real)) / kLibrary;
            if (!entry.empty() && fs::exists(library, error)) return library.string();
        }
    }
    return {};
}

}  // namespace feroce::cli
