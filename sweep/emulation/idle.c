/* A library for LD_PRELOAD: ranks of Open MPI that wait do so asleep, until something comes.
 *
 * A waiting rank asks all its sockets whether there is anything, without waiting, and calls sched_yield() where there is
 * not (mpi_yield_when_idle), again and again: it takes a core, which on an emulated cluster the packets need. Here
 * sched_yield() waits for the very sockets that its thread has just asked, but not for long: MPI may wait for what is no
 * socket. Threads that ask no sockets just yield. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 1024
#define IN_VAIN 2         /* so often in a row before it waits: most answers come at once */
#define LONGEST 1000000 /* ns */

static __thread struct pollfd asked[MOST];
static __thread nfds_t count;
static __thread int in_vain;

static void note(const struct pollfd *descriptors, nfds_t number, int found) {
    if (found) in_vain = 0;
    count = number <= MOST ? number : 0;
    memcpy(asked, descriptors, count * sizeof *descriptors);
}

int poll(struct pollfd *descriptors, nfds_t number, int timeout) {
    static int (*real)(struct pollfd *, nfds_t, int);
    if (!real) real = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
    int found = real(descriptors, number, timeout);
    if (timeout == 0) note(descriptors, number, found);
    return found;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    static int (*real)(int, struct epoll_event *, int, int);
    if (!real) real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    int found = real(epoll, events, most, timeout);
    struct pollfd all = {.fd = epoll, .events = POLLIN};
    if (timeout == 0) note(&all, 1, found);
    return found;
}

int sched_yield(void) {
    if (!count || in_vain++ < IN_VAIN) return (int)syscall(SYS_sched_yield);
    struct timespec longest = {0, LONGEST};
    nfds_t number = count;
    count = 0; /* asked anew before it waits again */
    ppoll(asked, number, &longest, NULL);
    return 0;
}
