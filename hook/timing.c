/* timing.c: how long calls take on the GPU, while the ring's profile word asks for it. A bracket is
 * two events of a pool around a call, or around the end of a group, in the call's own stream; later
 * calls look whether they are done, and write a record of each. Nothing here waits: what can't be
 * had at once (the lock, a free bracket, the budget) leaves the call unbracketed and is counted.
 * What the program sees of CUDA stays as it was: nothing is done while a capture is under way or an
 * error of its own is pending, and an error of ours is taken back.
 */
#include "timing.h"

#include "hook.h"

#define BRACKETS 256
#define MEMBERS 1024 /* calls of brackets and of groups that haven't ended */
#define GROUP_MEMBERS 256
#define RUN 16     /* calls on a communicator that are sampled together */
#define BLOCKED 4  /* streams found unfinished, after which a call asks no more */
#define RECORDS 64 /* after so many a call writes no more */
#define MIN_BURST 16.0
#define ORPHANED_NS 30000000000u /* without a word of the master's nobody reads what is timed */

enum { FREE, TAKEN, ISSUED };
struct bracket {
  gh_event_t start, end;
  cudaStream_t stream;
  uint32_t state;
  bool dropped; /* not to be told: the call failed or was not issued */
  uint8_t base;
  uint16_t epoch;
  uint32_t first; /* member + 1 */
};

/* A call of a bracket, as its record will be. */
struct member {
  struct gh_timing record;
  uint32_t next; /* + 1 */
};

GH_HOT_DATA uint32_t gh_timing_busy = 0; /* brackets under way */
static uint32_t lock;                    /* of all below, but `returned`; only ever tried */
static uint32_t returned;                /* chain of members that a thread gave back, + 1 */
static struct bracket brackets[BRACKETS];
static struct member members[MEMBERS];
static uint32_t free_member; /* + 1 */
static uint32_t members_used;
static uint16_t order[BRACKETS]; /* those in use, by age */
static uint32_t in_use;
static uint64_t word;
static uint16_t epoch;
static bool broken; /* until another epoch */
static double tokens;
static uint64_t filled_ns;

static struct gh_timing_counts *counts(void) { return gh_ring_at(GH_OFF_TIMINGS); }

static void count(uint64_t *what, uint64_t n) { __atomic_fetch_add(what, n, __ATOMIC_RELAXED); }

static bool try_lock(void) { return !__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE); }

static void unlock(void) { __atomic_store_n(&lock, 0, __ATOMIC_RELEASE); }

static uint32_t budget(void) { return (uint32_t)word; }

static double burst(void) { return budget() / 4 > MIN_BURST ? budget() / 4.0 : MIN_BURST; }

/* Every member of the communicator chooses the same. */
static bool chosen(uint32_t seq) {
  uint32_t one_in = (uint32_t)(word >> 32) & 0xffff;
  return one_in <= 1 || seq / RUN % one_in == 0;
}

static bool has_token(uint64_t now_ns) {
  if (now_ns > filled_ns) tokens += (double)(now_ns - filled_ns) * 1e-9 * budget();
  filled_ns = now_ns;
  if (tokens > burst()) tokens = burst();
  return tokens >= 1;
}

/* An analyzer that was killed within a window left the word set. 0: none has written the time. */
static bool orphaned(uint64_t now_ns) {
  uint64_t heard_ns =
      __atomic_load_n((uint64_t *)gh_ring_at(GH_OFF_MASTER_HEARTBEAT), __ATOMIC_RELAXED);
  return heard_ns && now_ns > heard_ns && now_ns - heard_ns > ORPHANED_NS;
}

/* The word as it is now; at 0 what is under way still ends. */
static void follow_word(uint64_t now_ns) {
  uint64_t wanted = __atomic_load_n((uint64_t *)gh_ring_at(GH_OFF_PROFILE), __ATOMIC_RELAXED);
  if (wanted && orphaned(now_ns)) wanted = 0;
  if (wanted == word) return;
  if (wanted && (uint16_t)(wanted >> 48) != epoch) {
    epoch = (uint16_t)(wanted >> 48);
    broken = false;
  }
  word = wanted;
  tokens = burst();
  filled_ns = now_ns;
}

/* Of an error that isn't "not ready": the device is lost, say. Nothing more until another epoch,
 * and then with new events. */
static void fail(void) {
  broken = true;
  count(&counts()->failed, 1);
  for (uint32_t i = 0; i < BRACKETS; i++)
    if (brackets[i].state == FREE) brackets[i].start = brackets[i].end = NULL;
  gh_clock_forget();
}

/* --- members --- */

static struct member *new_member(void) {
  if (!free_member) free_member = __atomic_exchange_n(&returned, 0, __ATOMIC_ACQUIRE);
  if (free_member) {
    struct member *m = &members[free_member - 1];
    free_member = m->next;
    return m;
  }
  return members_used < MEMBERS ? &members[members_used++] : NULL;
}

static uint32_t number_of(const struct member *m) { return (uint32_t)(m - members) + 1; }

/* With or without the lock. */
static void give_back(uint32_t first, uint32_t last) {
  uint32_t old = __atomic_load_n(&returned, __ATOMIC_RELAXED);
  do members[last - 1].next = old;
  while (!__atomic_compare_exchange_n(&returned, &old, first, true, __ATOMIC_RELEASE,
                                      __ATOMIC_RELAXED));
}

static void fill(struct member *m, const struct gh_record *r) {
  m->next = 0;
  m->record = (struct gh_timing){
      .comm = r->comm,
      .bytes = r->bytes,
      .seq = r->seq,
      .stream = r->stream,
      .group = r->group,
      .op = r->op | GH_OP_TIMING,
      .dtype = r->dtype,
      .flags = r->flags,
      .peer = r->peer,
      .entry_ns = r->t_ns,
  };
}

/* --- brackets --- */

static uint32_t tell(const struct bracket *b, uint64_t start_ns, uint64_t duration_ns) {
  uint32_t told = 0;
  if (duration_ns >> 40) duration_ns = (1ull << 40) - 1;
  for (uint32_t at = b->first; at; at = members[at - 1].next, told++) {
    struct gh_timing *t = &members[at - 1].record;
    t->start_ns = start_ns;
    t->duration_ns = (uint32_t)duration_ns;
    t->duration_high = (uint8_t)(duration_ns >> 32);
    gh_ring_write((const struct gh_record *)t);
  }
  count(&counts()->written, told);
  return told;
}

static void close_bracket(struct bracket *b) {
  uint32_t last = b->first;
  while (last && members[last - 1].next) last = members[last - 1].next;
  if (last) give_back(b->first, last);
  if (broken) b->start = b->end = NULL;
  gh_clock_release(b->base);
  __atomic_store_n(&b->state, FREE, __ATOMIC_RELAXED);
}

enum outcome { WAITING, DONE, FAILED };
static enum outcome ask(struct bracket *b, uint32_t *told) {
  float ms;
  uint64_t start_ns;
  if (b->dropped || b->epoch != epoch || broken) return DONE;
  int error = gh_events.query(b->end);
  if (!error) error = gh_clock_time_of(b->base, b->start, &start_ns);
  if (error == GH_CUDA_NOT_READY) return WAITING;
  if (error || gh_events.elapsed(&ms, b->start, b->end)) return FAILED;
  *told += tell(b, start_ns, gh_events_ns(ms));
  return DONE;
}

static bool is_among(cudaStream_t stream, cudaStream_t const *some, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (some[i] == stream) return true;
  return false;
}

/* Tells of those that are done, oldest first: what follows an unfinished one in its stream isn't.
 */
static void collect(void) {
  cudaStream_t blocked[BLOCKED];
  uint32_t blocked_count = 0, told = 0, kept = 0;
  for (uint32_t i = 0; i < in_use; i++) {
    struct bracket *b = &brackets[order[i]];
    bool asked = __atomic_load_n(&b->state, __ATOMIC_ACQUIRE) == ISSUED &&
                 blocked_count < BLOCKED && told < RECORDS &&
                 !is_among(b->stream, blocked, blocked_count);
    enum outcome outcome = asked ? ask(b, &told) : WAITING;
    if (outcome == FAILED) fail();
    if (outcome == WAITING) order[kept++] = order[i];
    if (outcome == WAITING && asked) blocked[blocked_count++] = b->stream;
    if (outcome != WAITING) close_bracket(b);
  }
  in_use = kept;
  __atomic_store_n(&gh_timing_busy, in_use, __ATOMIC_RELAXED);
}

static struct bracket *free_bracket(void) {
  if (in_use == BRACKETS) return NULL;
  for (uint32_t i = 0; i < BRACKETS; i++)
    if (__atomic_load_n(&brackets[i].state, __ATOMIC_RELAXED) == FREE) return &brackets[i];
  return NULL;
}

/* A bracket whose first event is in the stream; NULL where that can't be. */
static struct bracket *open_bracket(cudaStream_t stream, uint64_t now_ns) {
  struct gh_timing_counts *c = counts();
  struct bracket *b = gh_clock_known() ? free_bracket() : NULL;
  if (!b) return count(&c->no_room, 1), NULL;
  if (!has_token(now_ns)) return count(&c->over_budget, 1), NULL;
  tokens -= 1;
  if ((!b->start && gh_events.create(&b->start, 0)) || (!b->end && gh_events.create(&b->end, 0)) ||
      gh_events.record(b->start, stream))
    return fail(), NULL;
  b->stream = stream;
  b->dropped = false;
  b->base = gh_clock_take();
  b->epoch = epoch;
  order[in_use++] = (uint16_t)(b - brackets);
  __atomic_store_n(&gh_timing_busy, in_use, __ATOMIC_RELAXED);
  __atomic_store_n(&b->state, TAKEN, __ATOMIC_RELAXED);
  count(&c->made, 1);
  return b;
}

/* --- calls --- */

/* Not one of the calls that go into a graph, and nothing in any thread that may make one. */
static bool may_touch(cudaStream_t stream) {
  return !__atomic_load_n(&gh_captures, __ATOMIC_RELAXED) &&
         gh_cuda_never_captures(stream, gh_thread.caller);
}

/* With nothing to ask for and nothing to begin, CUDA is left alone. */
static bool idles(bool wanted, uint64_t now_ns) {
  wanted = wanted && word;
  if (in_use || (wanted && has_token(now_ns))) return false;
  if (wanted) count(&counts()->over_budget, 1);
  return true;
}

/* Under the lock, what every call does first. False: nothing more is possible. */
static bool visit(uint64_t now_ns) {
  if (!broken && word && !gh_clock_keep(now_ns)) fail();
  collect();
  return word && !broken;
}

static void single(struct gh_call *call, cudaStream_t stream) {
  int mode;
  struct gh_record *r = &call->record;
  if (idles(chosen(r->seq), r->t_ns)) return;
  if (!gh_events_suit() || !may_touch(stream)) return count(&counts()->unsuited, 1);
  if (!gh_events_enter(&mode)) return count(&counts()->unsuited, 1);
  if (visit(r->t_ns) && chosen(r->seq)) {
    struct member *m = new_member();
    struct bracket *b = m ? open_bracket(stream, r->t_ns) : NULL;
    if (m) fill(m, r);
    if (b) b->first = number_of(m);
    if (m && !b) give_back(number_of(m), number_of(m));
    call->bracket = b;
  }
  gh_events_leave(mode);
}

/* Another call of a group: kept for its end. A group that isn't kept whole isn't timed. */
static void member(struct gh_call *call, cudaStream_t stream) {
  struct gh_thread *t = &gh_thread;
  bool first = t->group_calls == 1;
  if (first) t->timed_stream = stream;
  bool fits = t->timed_calls == t->group_calls - 1 && stream == t->timed_stream &&
              t->timed_calls < GROUP_MEMBERS && !(call->record.flags & GH_REC_CAPTURED);
  struct member *m = fits ? new_member() : NULL;
  if (!m) return;
  fill(m, &call->record);
  if (first) t->timed_chosen = false;
  t->timed_chosen |= chosen(call->record.seq);
  *(first ? &t->timed_first : &members[t->timed_last - 1].next) = number_of(m);
  t->timed_last = number_of(m);
  t->timed_calls++;
}

static void begin(struct gh_call *call) {
  call->timed = true;
  call->bracket = NULL;
  call->own_ns = 0;
}

/* Before a call is forwarded. */
void gh_timing_begin(struct gh_call *call, cudaStream_t stream) {
  begin(call);
  if (!try_lock()) return count(&counts()->contended, 1);
  follow_word(call->record.t_ns);
  if (gh_thread.group_depth)
    member(call, stream);
  else
    single(call, stream);
  unlock();
  call->own_ns = gh_now_ns() - call->record.t_ns;
}

static struct bracket *around_group(const struct gh_call *call) {
  struct gh_thread *t = &gh_thread;
  struct bracket *b = NULL;
  int mode;
  if (idles(true, call->record.t_ns)) return NULL;
  if (!gh_events_suit() || !may_touch(t->timed_stream)) return count(&counts()->unsuited, 1), NULL;
  if (!gh_events_enter(&mode)) return count(&counts()->unsuited, 1), NULL;
  if (visit(call->record.t_ns)) b = open_bracket(t->timed_stream, call->record.t_ns);
  if (b) b->first = t->timed_first;
  gh_events_leave(mode);
  return b;
}

/* Before the end of a group that has members kept. */
void gh_timing_group(struct gh_call *call) {
  struct gh_thread *t = &gh_thread;
  begin(call);
  bool whole = t->timed_calls == t->group_calls;
  bool wanted = call->recorded && call->record.op == GH_OP_GROUP && t->timed_chosen;
  if (wanted && !whole) count(&counts()->unsuited, 1);
  if (wanted && whole && try_lock()) {
    follow_word(call->record.t_ns);
    call->bracket = around_group(call);
    unlock();
    call->own_ns = gh_now_ns() - call->record.t_ns;
  } else if (wanted && whole) {
    count(&counts()->contended, 1);
  }
  if (!call->bracket) give_back(t->timed_first, t->timed_last);
  t->timed_calls = 0;
}

static void issued(struct bracket *b, ncclResult_t result) {
  int mode;
  if (result != GH_NCCL_SUCCESS) {
    b->dropped = true; /* or it is launched by NCCL's own thread, nobody knows when */
    count(&counts()->unsuited, 1);
  } else if (gh_events_enter(&mode)) {
    b->dropped = gh_events.record(b->end, b->stream) != 0;
    gh_events_leave(mode);
  } else {
    b->dropped = true;
  }
  __atomic_store_n(&b->state, ISSUED, __ATOMIC_RELEASE);
}

static bool may_query(void) {
  return !broken && gh_events_suit() && !__atomic_load_n(&gh_captures, __ATOMIC_RELAXED);
}

/* After it. */
uint64_t gh_timing_end(struct gh_call *call, ncclResult_t result) {
  int mode;
  if (call->bracket) issued(call->bracket, result);
  if ((call->record.flags & GH_REC_IN_GROUP) || !try_lock()) return call->own_ns;
  if (gh_clock_unseen() && may_query() && gh_events_enter(&mode)) {
    if (!gh_clock_look()) fail();
    gh_events_leave(mode);
  }
  unlock();
  return call->own_ns;
}
