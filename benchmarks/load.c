/* A load client for the Kafka protocol: one thread, one epoll, no protocol knowledge.
 *
 * It replays request frames that the harness wrote to a file, keeps `depth` of them in flight on each of
 * `connections` connections, sends the next when an answer comes, and checks the error code at a position
 * that the harness computed. With a rate it is no closed loop but a steady load: so many requests a second
 * become due, evenly spread over the connections, and a latency counts from when its request was due, sent
 * or not: a server that stands still is not spared the requests that had to wait for it. What made the load
 * itself late is not held against the server: a request that its connection had room for when it was due
 * counts from when it was sent; not at all when the load was half a millisecond behind, since it then sends
 * many at once, as no client would; and an answer has come when the kernel had it. Where the harness
 * hands out producer ids, it patches producer id, epoch and base sequence into the record batch and computes
 * the batch's CRC-32C anew, so that idempotent produces are real ones. It must be cheaper than any server it
 * measures: nothing is allocated after the start.
 *
 * Frame file, little endian: u32 count, then per frame: u32 length, i32 batch position (-1: none),
 * i32 position of the int16 error code in the answer after its length field (-1: none), u32 slot (which
 * topic and partition, for the sequence counter), then the bytes, length prefix included.
 *
 * It ends when its time is over, after -n answers, or at SIGINT. Then it prints one JSON object: requests,
 * errors, seconds, bytes_sent, bytes_received, p50/p99/p999/max in us, the median of the p99s of all tenths
 * of a second, sent_late (of a steady load: requests that do not count), cpu_seconds (its own) and
 * waited_seconds (how long it wanted to run and its core had something else to do).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define LARGE_FRAME 65536 /* from here on frames are sent where they lie, unpatched */
#define HEAD_BYTES 640    /* of each answer kept for the checks */
#define SUB_BUCKETS 64    /* latency histogram: linear steps within each power of two */
#define READ_BYTES (1 << 20)
#define WINDOW_NS 100000000ull
#define WINDOWS_MAX 100000
#define LATE_NS 500000 /* of a steady load */
#define UNCOUNTED UINT64_MAX

struct frame {
    uint8_t *bytes;
    uint32_t length;
    int32_t batch_position, error_position;
    uint32_t slot;
};

struct connection {
    int fd;
    uint64_t random;
    uint64_t next_due; /* of a steady load: when its next request is to be sent */
    uint64_t answered_at; /* its last answer */
    int is_late;          /* the load was, with its last request */
    uint32_t next_frame, correlation_sent, correlation_expected;
    int64_t producer_id;
    int32_t *sequences;
    uint64_t *sent_at;      /* ring of `depth` */
    uint32_t *sent_frame;   /* ring of `depth` */
    uint32_t head, in_flight;
    uint8_t *out;           /* frames that wait for the socket */
    size_t out_length, out_sent;
    uint32_t large_pending; /* large frames still to send; out is unused then */
    size_t large_sent;
    uint64_t answer_length, answer_have; /* of the answer being read; length counts its own four bytes */
    uint8_t answer[HEAD_BYTES];
};

static struct frame *frames;
static uint32_t frame_count, slot_count, depth = 1;
static int ordered, large, thrown_away;
static uint64_t step_ns; /* of a steady load: between two requests of one connection; 0: a closed loop */
static volatile sig_atomic_t stopped;
struct histogram {
    uint64_t buckets[64 * SUB_BUCKETS], total;
};
static struct histogram whole, window; /* the measurement, and the part of it that goes on */
static double window_p99s[WINDOWS_MAX]; /* us */
static uint32_t window_count;
static uint64_t requests, sent_late, errors, bytes_sent, bytes_received, longest;
static int measuring;
static uint32_t crc_table[256];

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* When the bytes of a message came into the kernel, as of `now_ns`; now, where the kernel does not say. */
static uint64_t arrival_ns(struct msghdr *message) {
    struct timespec arrived, t;
    uint64_t now = now_ns();
    for (struct cmsghdr *note = CMSG_FIRSTHDR(message); note; note = CMSG_NXTHDR(message, note)) {
        if (note->cmsg_level != SOL_SOCKET || note->cmsg_type != SO_TIMESTAMPNS) continue;
        memcpy(&arrived, CMSG_DATA(note), sizeof arrived);
        clock_gettime(CLOCK_REALTIME, &t);
        int64_t age = (int64_t)(t.tv_sec - arrived.tv_sec) * 1000000000 + (t.tv_nsec - arrived.tv_nsec);
        if (age > 0) now -= (uint64_t)age;
    }
    return now;
}

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* How long this process has been ready to run without running; 0 where the kernel does not count it. */
static double waited_s(void) {
    unsigned long long ran = 0, waited = 0;
    FILE *file = fopen("/proc/self/schedstat", "r");
    if (file) {
        if (fscanf(file, "%llu %llu", &ran, &waited) != 2) waited = 0;
        fclose(file);
    }
    return (double)waited / 1e9;
}

static void stop(int signal_number) {
    (void)signal_number;
    stopped = 1;
}

static void die(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint32_t crc32c_plain(const uint8_t *p, size_t n) {
    uint32_t c = ~0u;
    while (n--) c = crc_table[(c ^ *p++) & 255] ^ (c >> 8);
    return ~c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse(const uint8_t *p, size_t n) {
    uint64_t c = ~0u;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = __builtin_ia32_crc32di(c, word);
    }
    while (n--) c = __builtin_ia32_crc32qi((uint32_t)c, *p++);
    return ~(uint32_t)c;
}
static uint32_t crc32c(const uint8_t *p, size_t n) {
    return __builtin_cpu_supports("sse4.2") ? crc32c_sse(p, n) : crc32c_plain(p, n);
}
#else
static uint32_t crc32c(const uint8_t *p, size_t n) { return crc32c_plain(p, n); }
#endif

static void put32(uint8_t *p, uint32_t v) { v = htonl(v); memcpy(p, &v, 4); }
static uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return ntohl(v); }

static void count(struct histogram *h, uint64_t ns) {
    uint64_t v = ns / 16; /* resolution of 16 ns at the bottom, 1.6 % above */
    int shift = 0;
    while (v >= 2 * SUB_BUCKETS) { v >>= 1; shift++; }
    uint64_t index = (uint64_t)shift * SUB_BUCKETS + v;
    if (index >= 64 * SUB_BUCKETS) index = 64 * SUB_BUCKETS - 1;
    h->buckets[index]++;
    h->total++;
}

static void record_latency(uint64_t ns) {
    count(&whole, ns);
    count(&window, ns);
    if (ns > longest) longest = ns;
}

static double quantile_us(const struct histogram *h, double q) {
    uint64_t seen = 0;
    for (int i = 0; i < 64 * SUB_BUCKETS; i++) {
        seen += h->buckets[i];
        if (h->total && (double)seen >= q * (double)h->total) {
            uint64_t shift = i < 2 * SUB_BUCKETS ? 0 : (uint64_t)(i / SUB_BUCKETS - 1);
            uint64_t v = (uint64_t)i - shift * SUB_BUCKETS;
            return (double)((v << shift) * 16 + (8ull << shift)) / 1000.0;
        }
    }
    return 0;
}

static void close_window(void) {
    if (window.total && window_count < WINDOWS_MAX) window_p99s[window_count++] = quantile_us(&window, 0.99);
    memset(&window, 0, sizeof window);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_window_p99_us(void) {
    if (!window_count) return 0;
    qsort(window_p99s, window_count, sizeof *window_p99s, by_value);
    return window_p99s[window_count / 2];
}

static uint32_t pick(struct connection *c) {
    if (ordered) return c->next_frame++ % frame_count;
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (uint32_t)(c->random % frame_count);
}

/* Note one more request as sent; the ring gives each answer its start. */
static struct frame *take(struct connection *c, uint64_t now) {
    uint32_t index = pick(c), place = (c->head + c->in_flight) % depth;
    c->sent_at[place] = now;
    c->sent_frame[place] = index;
    c->in_flight++;
    return &frames[index];
}

static void copy_frame(struct connection *c, struct frame *f) {
    uint8_t *to = c->out + c->out_length;
    memcpy(to, f->bytes, f->length);
    put32(to + 8, c->correlation_sent++);
    if (c->producer_id >= 0 && f->batch_position >= 0) {
        uint8_t *batch = to + f->batch_position;
        uint32_t batch_length = 12 + get32(batch + 8);
        int32_t *sequence = &c->sequences[f->slot];
        uint32_t record_count = get32(batch + 57);
        put32(batch + 43, (uint32_t)((uint64_t)c->producer_id >> 32));
        put32(batch + 47, (uint32_t)c->producer_id);
        batch[51] = batch[52] = 0; /* epoch 0 */
        put32(batch + 53, (uint32_t)*sequence);
        *sequence = (int32_t)(((uint32_t)*sequence + record_count) & 0x7fffffffu);
        put32(batch + 17, crc32c(batch + 21, batch_length - 21));
    }
    c->out_length += f->length;
}

/* Returns 0 when the socket is full and a writable event is wanted. */
static int flush_out(struct connection *c) {
    while (large && c->large_pending) {
        uint32_t place = (c->head + c->in_flight - c->large_pending) % depth;
        struct frame *f = &frames[c->sent_frame[place]];
        ssize_t n = send(c->fd, f->bytes + c->large_sent, f->length - c->large_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EAGAIN) return 0;
            die("send");
        }
        bytes_sent += (uint64_t)n;
        c->large_sent += (size_t)n;
        if (c->large_sent == f->length) { c->large_sent = 0; c->large_pending--; }
    }
    while (c->out_sent < c->out_length) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_length - c->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EAGAIN) return 0;
            die("send");
        }
        bytes_sent += (uint64_t)n;
        c->out_sent += (size_t)n;
    }
    c->out_sent = c->out_length = 0;
    return 1;
}

static int may_send(struct connection *c, uint64_t now) {
    return c->in_flight < depth && (!step_ns || c->next_due <= now);
}

static void send_more(struct connection *c, uint64_t now) {
    while (may_send(c, now)) {
        int has_waited = step_ns && c->answered_at > c->next_due; /* for the server, not for the load */
        /* What waited for one that was late is late with it. */
        c->is_late = step_ns && now > c->next_due + LATE_NS && (!has_waited || c->is_late);
        if (measuring && c->is_late) sent_late++;
        struct frame *f = take(c, c->is_late ? UNCOUNTED : has_waited ? c->next_due : now);
        c->next_due += step_ns;
        if (large) c->large_pending++;
        else copy_frame(c, f);
    }
}

static void answered(struct connection *c, uint64_t now) {
    struct frame *f = &frames[c->sent_frame[c->head]];
    uint32_t correlation = get32(c->answer + 4);
    if (!large && correlation != c->correlation_expected++) {
        fprintf(stderr, "load: answer %u out of order\n", correlation);
        exit(1);
    }
    uint64_t since = c->sent_at[c->head];
    if (measuring && since != UNCOUNTED) record_latency(now > since ? now - since : 0);
    c->answered_at = now;
    requests++;
    if (f->error_position >= 0) {
        uint64_t at = (uint64_t)f->error_position + 4;
        if (at + 2 > c->answer_length || at + 2 > HEAD_BYTES || c->answer[at] || c->answer[at + 1]) {
            if (!errors)
                fprintf(stderr, "load: first refused answer: error code %d\n", (int16_t)(c->answer[at] << 8 | c->answer[at + 1]));
            errors++;
        }
    }
    c->head = (c->head + 1) % depth;
    c->in_flight--;
}

static void digest(struct connection *c, const uint8_t *p, size_t n, uint64_t now) {
    while (n) {
        uint64_t want = c->answer_have < 4 ? 4 - c->answer_have : c->answer_length - c->answer_have;
        uint64_t step = want < n ? want : n;
        if (c->answer_have < HEAD_BYTES) {
            uint64_t room = HEAD_BYTES - c->answer_have;
            memcpy(c->answer + c->answer_have, p, step < room ? step : room);
        }
        c->answer_have += step;
        p += step;
        n -= step;
        if (c->answer_have == 4) c->answer_length = 4 + (uint64_t)get32(c->answer);
        if (c->answer_have >= 8 && c->answer_have == c->answer_length) {
            answered(c, now);
            c->answer_have = c->answer_length = 0;
        }
    }
}

/* Wakes the loop when the next request is due that its connection has room for. */
static void set_timer(int timer, struct connection *all, int connection_count) {
    uint64_t earliest = UINT64_MAX;
    for (int i = 0; i < connection_count; i++)
        if (all[i].in_flight < depth && all[i].next_due < earliest) earliest = all[i].next_due;
    struct itimerspec when = {{0, 0}, {0, 0}};
    if (earliest != UINT64_MAX) {
        when.it_value.tv_sec = (time_t)(earliest / 1000000000ull);
        when.it_value.tv_nsec = (long)(earliest % 1000000000ull);
    }
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL)) die("timerfd_settime");
}

static void load_frames(const char *path) {
    FILE *file = fopen(path, "rb");
    uint32_t head[4];
    if (!file || fread(&frame_count, 4, 1, file) != 1) die(path);
    frames = calloc(frame_count, sizeof *frames);
    for (uint32_t i = 0; i < frame_count; i++) {
        struct frame *f = &frames[i];
        if (fread(head, 4, 4, file) != 4) die(path);
        f->length = head[0];
        f->batch_position = (int32_t)head[1];
        f->error_position = (int32_t)head[2];
        f->slot = head[3];
        if (f->slot >= slot_count) slot_count = f->slot + 1;
        if (f->length >= LARGE_FRAME) large = 1;
        f->bytes = malloc(f->length);
        if (fread(f->bytes, 1, f->length, file) != f->length) die(path);
    }
    fclose(file);
}

static int dial(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, host, &address.sin_addr);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

int main(int argc, char **argv) {
    const char *host = "127.0.0.1", *path = NULL;
    int port = 0, connection_count = 1, option;
    double seconds = 3, warmup = 0;
    int64_t first_producer_id = -1;
    uint64_t answers_wanted = UINT64_MAX;
    double rate = 0;
    while ((option = getopt(argc, argv, "h:p:f:c:d:s:w:i:r:n:ot")) != -1) {
        switch (option) {
        case 'h': host = optarg; break;
        case 'p': port = atoi(optarg); break;
        case 'f': path = optarg; break;
        case 'c': connection_count = atoi(optarg); break;
        case 'd': depth = (uint32_t)atoi(optarg); break;
        case 's': seconds = atof(optarg); break;
        case 'w': warmup = atof(optarg); break;
        case 'i': first_producer_id = atoll(optarg); break; /* one a connection, counted up */
        case 'r': rate = atof(optarg); break; /* requests a second, of all connections together */
        case 'n': answers_wanted = (uint64_t)atoll(optarg); break;
        case 'o': ordered = 1; break;
        case 't': thrown_away = 1; break; /* of long answers only the head is copied out of the kernel */
        default:
            fprintf(stderr, "usage: load -p PORT -f FRAMES [-h HOST] [-c CONNECTIONS] [-d DEPTH] [-s SECONDS] "
                            "[-w WARMUP] [-i FIRST_PRODUCER_ID] [-r REQUESTS_A_SECOND] [-n ANSWERS] [-o] [-t]\n");
            return 2;
        }
    }
    if (!path || !port) { fprintf(stderr, "load: -p and -f are needed\n"); return 2; }
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
        crc_table[i] = c;
    }
    load_frames(path);
    uint32_t longest_frame = 0;
    for (uint32_t i = 0; i < frame_count; i++) if (frames[i].length > longest_frame) longest_frame = frames[i].length;

    int epoll = epoll_create1(0);
    struct connection *all = calloc((size_t)connection_count, sizeof *all);
    uint8_t *buffer = malloc(READ_BYTES);
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = &all[i];
        c->fd = dial(host, port);
        c->random = 0x9e3779b97f4a7c15ull * (uint64_t)(i + 1);
        c->next_frame = (uint32_t)i;
        c->producer_id = first_producer_id < 0 ? -1 : first_producer_id + i;
        c->sequences = calloc(slot_count, sizeof *c->sequences);
        c->sent_at = calloc(depth, sizeof *c->sent_at);
        c->sent_frame = calloc(depth, sizeof *c->sent_frame);
        c->out = large ? NULL : malloc((size_t)longest_frame * depth);
    }
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = &all[i];
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event)) die("epoll_ctl");
    }
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event ticks = {.events = EPOLLIN, .data.ptr = NULL};
    if (timer < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &ticks)) die("timerfd");
    struct sigaction stopping = {.sa_handler = stop};
    sigaction(SIGINT, &stopping, NULL);
    uint64_t begin = now_ns(), measure_from = begin + (uint64_t)(warmup * 1e9), end = measure_from + (uint64_t)(seconds * 1e9);
    uint64_t now = begin, window_end = 0, requests_before = 0, sent_before = 0, received_before = 0;
    double cpu_before = 0, waited_before = 0;
    struct epoll_event events[512];
    if (rate > 0) {
        int one = 1;
        for (int i = 0; i < connection_count; i++)
            if (setsockopt(all[i].fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one)) die("SO_TIMESTAMPNS");
        step_ns = (uint64_t)(1e9 * connection_count / rate);
        for (int i = 0; i < connection_count; i++) all[i].next_due = begin + (uint64_t)i * step_ns / (uint64_t)connection_count;
    }
    for (int i = 0; i < connection_count; i++) { send_more(&all[i], now_ns()); flush_out(&all[i]); }
    while (now < end && !stopped && requests < answers_wanted) {
        if (step_ns) set_timer(timer, all, connection_count);
        int n = epoll_wait(epoll, events, 512, 100);
        now = now_ns();
        if (!measuring && now >= measure_from) {
            measuring = 1;
            measure_from = now;
            end = now + (uint64_t)(seconds * 1e9);
            requests_before = requests; sent_before = bytes_sent; received_before = bytes_received;
            cpu_before = cpu_s(); waited_before = waited_s();
            window_end = now + WINDOW_NS;
        }
        if (measuring && now >= window_end) {
            close_window();
            window_end = now + WINDOW_NS;
        }
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) continue; /* the timer: `set_timer` takes its tick away */
            for (;;) {
                size_t most = READ_BYTES;
                int how = MSG_DONTWAIT;
                if (thrown_away && c->answer_have < HEAD_BYTES) most = HEAD_BYTES - c->answer_have;
                else if (thrown_away && c->answer_have < c->answer_length) {
                    most = c->answer_length - c->answer_have;
                    how |= MSG_TRUNC;
                }
                uint8_t notes[CMSG_SPACE(sizeof(struct timespec))] __attribute__((aligned(8)));
                struct iovec place = {buffer, most};
                struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1};
                if (step_ns) message.msg_control = notes, message.msg_controllen = sizeof notes;
                ssize_t got = step_ns ? recvmsg(c->fd, &message, how) : recv(c->fd, buffer, most, how);
                if (got == 0) { fprintf(stderr, "load: the broker closed a connection\n"); return 1; }
                if (got < 0) {
                    if (errno == EAGAIN) break;
                    die("recv");
                }
                bytes_received += (uint64_t)got;
                digest(c, buffer, (size_t)got, step_ns ? arrival_ns(&message) : now_ns());
                if ((size_t)got < most) break;
            }
            send_more(c, now_ns());
            flush_out(c);
        }
        for (int i = 0; step_ns && i < connection_count; i++)
            if (may_send(&all[i], now)) { send_more(&all[i], now_ns()); flush_out(&all[i]); }
    }
    if (!measuring) { fprintf(stderr, "load: it was stopped before it began to measure\n"); return 1; }
    now = now_ns();
    for (int i = 0; i < connection_count; i++) /* an answer that is still out has taken so long at least */
        if (all[i].in_flight && all[i].sent_at[all[i].head] < now && now - all[i].sent_at[all[i].head] > longest)
            longest = now - all[i].sent_at[all[i].head];
    double elapsed = (double)(now - measure_from) / 1e9;
    printf("{\"requests\": %llu, \"errors\": %llu, \"seconds\": %.6f, \"bytes_sent\": %llu, \"bytes_received\": %llu, "
           "\"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f, \"max_us\": %.2f, \"median_window_p99_us\": %.2f, "
           "\"sent_late\": %llu, \"cpu_seconds\": %.4f, \"waited_seconds\": %.4f}\n",
           (unsigned long long)(requests - requests_before), (unsigned long long)errors, elapsed,
           (unsigned long long)(bytes_sent - sent_before), (unsigned long long)(bytes_received - received_before),
           quantile_us(&whole, 0.50), quantile_us(&whole, 0.99), quantile_us(&whole, 0.999), (double)longest / 1000.0,
           median_window_p99_us(), (unsigned long long)sent_late,
           cpu_s() - cpu_before, waited_s() - waited_before);
    return 0;
}
