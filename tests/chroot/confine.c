/* confine CMD ARGS: runs a command as a container engine would with its default profile: without
 * new privileges, and with the system calls refused that such profiles refuse to a container
 * without capabilities (io_uring among them). Linked statically, to be copied into bare systems. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REFUSE(name)                                            \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1),      \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

int main(int argc, char** argv) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        REFUSE(acct), REFUSE(add_key), REFUSE(bpf), REFUSE(clock_adjtime), REFUSE(clock_settime),
        REFUSE(delete_module), REFUSE(finit_module), REFUSE(fsconfig), REFUSE(fsmount),
        REFUSE(fsopen), REFUSE(init_module), REFUSE(io_uring_enter), REFUSE(io_uring_register),
        REFUSE(io_uring_setup), REFUSE(kexec_load), REFUSE(keyctl), REFUSE(mount),
        REFUSE(move_mount), REFUSE(open_by_handle_at), REFUSE(open_tree), REFUSE(perf_event_open),
        REFUSE(pivot_root), REFUSE(quotactl), REFUSE(reboot), REFUSE(request_key), REFUSE(setns),
        REFUSE(settimeofday), REFUSE(swapon), REFUSE(swapoff), REFUSE(syslog), REFUSE(umount2),
        REFUSE(unshare), REFUSE(userfaultfd), REFUSE(vmsplice),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    if (argc < 2) return 2;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("confine");
        return 126;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
