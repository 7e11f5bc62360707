/* An Ethernet switch in user space that delays and drops packets, where the kernel has no netem, or hosts differ.
 *
 *     switch PORT...      the interfaces; the last one is no host's, and loses nothing
 *
 * stdin, as int64: of 2^32 packets between hosts so many are lost; then n x n delays in ns, from row to column. More of
 * all that replaces the first. It answers each with a line, and ends with stdin. Its first line, before that, says how
 * many bytes of packets it can hold for a port, each way. Packets leave through the queue of their port, so that a token
 * bucket there still shapes them.
 * With a vnet header a packet of many segments stays one. The last two bytes of a MAC address are the port's number. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif
#define HEADER 10                /* struct virtio_net_hdr */
#define LARGEST (HEADER + 70000) /* of a packet before it is cut into frames */
#define MOST (1u << 18)          /* packets on their way */
#define AT_A_TIME 64             /* from one port */
#define BUFFER (64 << 20)

struct packet {
    int64_t due;     /* ns of CLOCK_MONOTONIC */
    uint64_t number; /* those that are due together keep their order */
    int to, length;
    char data[];
};

static struct packet *heap[MOST]; /* the one that is due first is at 0 */
static uint32_t waiting;
static uint64_t numbers;
static int ports;
static int room = BUFFER; /* bytes that each port can hold */

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int before(const struct packet *a, const struct packet *b) {
    return a->due != b->due ? a->due < b->due : a->number < b->number;
}

static void push(struct packet *p) {
    uint32_t i = waiting++;
    for (; i && before(p, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = p;
}

static struct packet *pop(void) {
    struct packet *first = heap[0], *last = heap[--waiting];
    uint32_t i = 0, child;
    while ((child = 2 * i + 1) < waiting) {
        if (child + 1 < waiting && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], last)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return first;
}

static uint64_t draw(void) { /* xorshift64* */
    static uint64_t state = 0x9E3779B97F4A7C15u;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1Du;
}

static void fail(const char *what) {
    fprintf(stderr, "switch: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int open_port(const char *name) {
    int f = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), one = 1, wanted = BUFFER;
    if (f < 0) fail("packet sockets");
    if (setsockopt(f, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one)) fail("PACKET_VNET_HDR");
    if (setsockopt(f, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one)) fail("PACKET_IGNORE_OUTGOING");
    if (setsockopt(f, SOL_SOCKET, SO_RCVBUFFORCE, &wanted, sizeof wanted))
        setsockopt(f, SOL_SOCKET, SO_RCVBUF, &wanted, sizeof wanted);
    if (setsockopt(f, SOL_SOCKET, SO_SNDBUFFORCE, &wanted, sizeof wanted))
        setsockopt(f, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
    for (int i = 0; i < 2; i++) {
        int granted;
        socklen_t size = sizeof granted;
        if (getsockopt(f, SOL_SOCKET, i ? SO_SNDBUF : SO_RCVBUF, &granted, &size)) fail("buffers");
        if (granted / 2 < room) room = granted / 2; /* the other half is the kernel's own, for what it notes of packets */
    }
    struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    struct packet_mreq m = {.mr_type = PACKET_MR_PROMISC};
    a.sll_ifindex = m.mr_ifindex = if_nametoindex(name);
    if (bind(f, (struct sockaddr *)&a, sizeof a)) fail(name);
    if (setsockopt(f, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &m, sizeof m)) fail(name);
    return f;
}

/* Take a packet of port `from`; 0 where none is there. */
static int take(int f, int from, const int64_t *delays, int64_t loss) {
    static char data[LARGEST];
    ssize_t length = recv(f, data, sizeof data, MSG_DONTWAIT);
    if (length < 0) return 0;
    if (length < HEADER + ETH_HLEN) return 1;
    const unsigned char *to = (unsigned char *)data + HEADER;
    int all = to[0] & 1, port = to[4] << 8 | to[5];
    for (int i = all ? 0 : port; i < (all ? ports : port + 1) && i < ports; i++) {
        int managed = from == ports - 1 || i == ports - 1;
        if (i == from || waiting == MOST || (!managed && (int64_t)(draw() >> 32) < loss)) continue;
        struct packet *p = malloc(sizeof *p + length);
        if (!p) continue;
        *p = (struct packet){now() + delays[from * ports + i], numbers++, i, (int)length};
        memcpy(p->data, data, length);
        push(p);
    }
    return 1;
}

/* Read more of the table; 0 at the end of stdin. */
static int told(char *table, char *next, size_t size, size_t *read_so_far) {
    ssize_t n = read(0, next + *read_so_far, size - *read_so_far);
    if (n <= 0) return n < 0 && errno == EINTR;
    if ((*read_so_far += n) == size) {
        memcpy(table, next, size);
        *read_so_far = 0;
        if (write(1, "taken\n", 6) != 6) return 0;
    }
    return 1;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    ports = count - 1;
    size_t size = sizeof(int64_t) * (1 + ports * ports), so_far = 0;
    int64_t *table = calloc(1, size);
    char *next = malloc(size);
    struct pollfd *polled = calloc(ports + 1, sizeof *polled);
    if (!table || !next || !polled) fail("memory");
    struct sched_param priority = {.sched_priority = 50};
    sched_setscheduler(0, SCHED_FIFO, &priority); /* without the right to it, packets are a little later */
    prctl(PR_SET_TIMERSLACK, 1);
    for (int i = 0; i < ports; i++) polled[i] = (struct pollfd){open_port(words[i + 1]), POLLIN, 0};
    polled[ports] = (struct pollfd){0, POLLIN, 0};
    if (dprintf(1, "%d\n", room) < 0) fail("stdout");
    for (;;) {
        struct timespec left = {0, 0};
        if (waiting) {
            int64_t ns = heap[0]->due - now();
            if (ns > 0) left = (struct timespec){ns / 1000000000, ns % 1000000000};
        }
        if (ppoll(polled, ports + 1, waiting ? &left : NULL, NULL) < 0 && errno != EINTR) fail("ppoll");
        if (polled[ports].revents && !told((char *)table, next, size, &so_far)) return 0;
        for (int i = 0; i < ports; i++)
            if (polled[i].revents)
                for (int n = 0; n < AT_A_TIME && take(polled[i].fd, i, table + 1, table[0]); n++)
                    ;
        for (int64_t t = now(); waiting && heap[0]->due <= t;) {
            struct packet *p = pop();
            (void)!send(polled[p->to].fd, p->data, p->length, MSG_DONTWAIT); /* a full queue drops it, as a switch does */
            free(p);
        }
    }
}
