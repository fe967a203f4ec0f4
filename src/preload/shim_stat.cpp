// The calls of libc that look at a path, each with the path rewritten. The variants with an x are
// what programs from before glibc 2.33 call; on 64-bit machines their struct is the same.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "preload/next.hpp"
#include "preload/rewrite.hpp"

namespace feroce::preload {
namespace {

using Stat = struct stat;
using Statx = struct statx;

Next<int(int, const char*, Stat*, int)> next_fstatat("fstatat");
// That of glibc before 2.33, which has no fstatat and no stat.
Next<int(int, int, const char*, Stat*, int)> next_fxstatat("__fxstatat");
Next<int(int, const char*, int, unsigned, Statx*)> next_statx("statx");
Next<int(const char*, int)> next_access("access");
Next<int(const char*, int)> next_euidaccess("euidaccess");
Next<int(int, const char*, int, int)> next_faccessat("faccessat");
Next<ssize_t(const char*, const char*, void*, size_t)> next_getxattr("getxattr");
Next<ssize_t(const char*, const char*, void*, size_t)> next_lgetxattr("lgetxattr");

// All of them are this one: on 64-bit machines `stat64` is `stat`.
int look(int directory, const char* path, void* out, int flags) {
#ifdef __x86_64__
    constexpr int kStructVersion = 1;
#else
    constexpr int kStructVersion = 0;
#endif
    const Rewritten rewritten(path);
    auto* place = static_cast<Stat*>(out);
    if (next_fstatat.get() != nullptr)
        return next_fstatat(directory, rewritten.path(), place, flags);
    return next_fxstatat(kStructVersion, directory, rewritten.path(), place, flags);
}

}  // namespace

void look_up_stat_functions() {
    if (next_fstatat.get() == nullptr) next_fxstatat.get();
    next_statx.get();
    next_access.get();
    next_euidaccess.get();
    next_faccessat.get();
    next_getxattr.get();
    next_lgetxattr.get();
}

}  // namespace feroce::preload

using namespace feroce::preload;

#pragma GCC visibility push(default)
extern "C" {

int stat(const char* path, struct stat* out) noexcept {
    return look(AT_FDCWD, path, out, 0);
}
int stat64(const char* path, struct stat64* out) noexcept {
    return look(AT_FDCWD, path, out, 0);
}
int lstat(const char* path, struct stat* out) noexcept {
    return look(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
int lstat64(const char* path, struct stat64* out) noexcept {
    return look(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
int fstatat(int directory, const char* path, struct stat* out, int flags) noexcept {
    return look(directory, path, out, flags);
}
int fstatat64(int directory, const char* path, struct stat64* out, int flags) noexcept {
    return look(directory, path, out, flags);
}
int statx(int directory, const char* path, int flags, unsigned mask, struct statx* out) noexcept {
    return next_statx(directory, Rewritten(path).path(), flags, mask, out);
}

int __xstat(int, const char* path, struct stat* out) noexcept {
    return look(AT_FDCWD, path, out, 0);
}
int __xstat64(int, const char* path, struct stat64* out) noexcept {
    return look(AT_FDCWD, path, out, 0);
}
int __lxstat(int, const char* path, struct stat* out) noexcept {
    return look(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
int __lxstat64(int, const char* path, struct stat64* out) noexcept {
    return look(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
int __fxstatat(int, int directory, const char* path, struct stat* out, int flags) noexcept {
    return look(directory, path, out, flags);
}
int __fxstatat64(int, int directory, const char* path, struct stat64* out, int flags) noexcept {
    return look(directory, path, out, flags);
}

int access(const char* path, int mode) noexcept {
    return next_access(Rewritten(path).path(), mode);
}
int euidaccess(const char* path, int mode) noexcept {
    return next_euidaccess(Rewritten(path).path(), mode);
}
int eaccess(const char* path, int mode) noexcept {
    return next_euidaccess(Rewritten(path).path(), mode);
}
int faccessat(int directory, const char* path, int mode, int flags) noexcept {
    return next_faccessat(directory, Rewritten(path).path(), mode, flags);
}

// `ls -l` asks for access control lists.
ssize_t getxattr(const char* path, const char* name, void* value, size_t size) noexcept {
    return next_getxattr(Rewritten(path).path(), name, value, size);
}
ssize_t lgetxattr(const char* path, const char* name, void* value, size_t size) noexcept {
    return next_lgetxattr(Rewritten(path).path(), name, value, size);
}

}  // extern "C"
#pragma GCC visibility pop
