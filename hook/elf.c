/* elf.c: looks symbols up in the objects mapped into this process.
 *
 * Needed for two reasons: NCCL is often loaded RTLD_LOCAL, where dlsym(RTLD_NEXT) is blind; and
 * dlsym and dlopen themselves have moved between libraries and symbol versions (libdl before glibc
 * 2.34), so that linking to them would break the rule "no symbol newer than GLIBC_2.17, libc
 * alone".
 */
#include <elf.h>
#include <link.h>
#include <string.h>

#include "hook.h"

struct tables {
  const ElfW(Sym) * symbols;
  const char *strings;
  const uint32_t *gnu_hash;
  const uint32_t *sysv_hash;
  const char *wants, *defines; /* chains of ElfW(Verneed) and ElfW(Verdef) */
};

/* glibc relocates the dynamic section's addresses in place, musl doesn't. */
static const void *table_at(uintptr_t base, ElfW(Addr) address) {
  return (const void *)(address < base ? base + address : address);
}

static struct tables read_dynamic(const struct gh_object *object) {
  struct tables t = {0};
  for (const ElfW(Dyn) *d = object->dynamic; d && d->d_tag != DT_NULL; d++) {
    const void *at = table_at(object->base, d->d_un.d_ptr);
    if (d->d_tag == DT_SYMTAB) t.symbols = at;
    if (d->d_tag == DT_STRTAB) t.strings = at;
    if (d->d_tag == DT_GNU_HASH) t.gnu_hash = at;
    if (d->d_tag == DT_HASH) t.sysv_hash = at;
    if (d->d_tag == DT_VERNEED) t.wants = at;
    if (d->d_tag == DT_VERDEF) t.defines = at;
  }
  return t;
}

static bool matches(const struct tables *t, uint32_t index, const char *name) {
  const ElfW(Sym) *s = &t->symbols[index];
  unsigned type = s->st_info & 0xf; /* ELF32_ST_TYPE and ELF64_ST_TYPE are the same */
  return s->st_shndx != SHN_UNDEF && s->st_value && type == STT_FUNC &&
         !strcmp(t->strings + s->st_name, name);
}

/* Index of the symbol in a DT_GNU_HASH table, 0 if absent. */
static uint32_t find_gnu(const struct tables *t, const char *name) {
  uint32_t hash = 5381;
  for (const unsigned char *c = (const unsigned char *)name; *c; c++) hash = hash * 33 + *c;
  uint32_t bucket_count = t->gnu_hash[0], first = t->gnu_hash[1], bloom_words = t->gnu_hash[2];
  const uint32_t *buckets = t->gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
  const uint32_t *chain = buckets + bucket_count;
  if (!bucket_count) return 0;
  uint32_t index = buckets[hash % bucket_count];
  for (; index >= first && index; index++) {
    uint32_t entry = chain[index - first];
    if ((entry | 1) == (hash | 1) && matches(t, index, name)) return index;
    if (entry & 1) break;
  }
  return 0;
}

/* Index of the symbol in a DT_HASH table, 0 if absent. */
static uint32_t find_sysv(const struct tables *t, const char *name) {
  uint32_t hash = 0;
  for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
    hash = (hash << 4) + *c;
    hash = (hash ^ ((hash >> 24) & 0xf0)) & 0x0fffffff;
  }
  uint32_t bucket_count = t->sysv_hash[0];
  const uint32_t *buckets = t->sysv_hash + 2, *chain = buckets + bucket_count;
  for (uint32_t i = bucket_count ? buckets[hash % bucket_count] : 0; i; i = chain[i])
    if (matches(t, i, name)) return i;
  return 0;
}

void *gh_elf_symbol(const struct gh_object *object, const char *symbol) {
  struct tables t = read_dynamic(object);
  if (!t.symbols || !t.strings) return NULL;
  uint32_t index = 0;
  if (t.gnu_hash)
    index = find_gnu(&t, symbol);
  else if (t.sysv_hash)
    index = find_sysv(&t, symbol);
  return index ? (void *)(object->base + t.symbols[index].st_value) : NULL;
}

static bool begins(const char *text, const char *prefix) {
  return !strncmp(text, prefix, strlen(prefix));
}

const char *gh_elf_wanted_version(const struct gh_object *object, const char *library) {
  struct tables t = read_dynamic(object);
  const char *at = t.strings ? t.wants : NULL;
  while (at) {
    const ElfW(Verneed) *need = (const void *)at;
    const ElfW(Vernaux) *first = (const void *)(at + need->vn_aux);
    if (need->vn_cnt && begins(t.strings + need->vn_file, library))
      return t.strings + first->vna_name;
    at = need->vn_next ? at + need->vn_next : NULL;
  }
  return NULL;
}

bool gh_elf_has_version(const struct gh_object *object, const char *version) {
  struct tables t = read_dynamic(object);
  const char *at = t.strings ? t.defines : NULL;
  if (!at) return true;
  while (at) {
    const ElfW(Verdef) *definition = (const void *)at;
    const ElfW(Verdaux) *name = (const void *)(at + definition->vd_aux);
    bool base = definition->vd_flags & VER_FLG_BASE; /* the file's own name, no version */
    if (!base && !strcmp(t.strings + name->vda_name, version)) return true;
    at = definition->vd_next ? at + definition->vd_next : NULL;
  }
  return false;
}

struct search {
  uintptr_t address;   /* containing this, or all of: */
  const char *prefix;  /* of this file name, */
  const char *symbol;  /* defining this, not the hook itself, */
  const char *version; /* in this version, */
  bool behind;         /* no preload object in front of the hook */
  bool passed;         /* the hook was */
  struct gh_object *out;
};

static struct gh_object describe(const struct dl_phdr_info *info) {
  struct gh_object o = {.low = UINTPTR_MAX, .base = info->dlpi_addr, .name = info->dlpi_name};
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    uintptr_t start = info->dlpi_addr + p->p_vaddr;
    if (p->p_type == PT_DYNAMIC) o.dynamic = (const void *)start;
    if (p->p_type != PT_LOAD) continue;
    if (start < o.low) o.low = start;
    if (start + p->p_memsz > o.high) o.high = start + p->p_memsz;
  }
  if (!o.name) o.name = "";
  return o;
}

static bool is_here(const struct gh_object *o) {
  uintptr_t here = (uintptr_t)&gh_elf_self;
  return here >= o->low && here < o->high;
}

static bool fits(const struct search *s, const struct gh_object *o) {
  if (s->address) return s->address >= o->low && s->address < o->high;
  if (strstr(o->name, "vdso") || !o->dynamic) return false; /* its addresses aren't relocated */
  const char *slash = strrchr(o->name, '/');
  if (s->prefix && !begins(slash ? slash + 1 : o->name, s->prefix)) return false;
  if (s->behind && !s->passed && *o->name) return false; /* the executable has no name */
  if (s->symbol && (is_here(o) || !gh_elf_symbol(o, s->symbol))) return false;
  return !s->version || gh_elf_has_version(o, s->version);
}

static int visit(struct dl_phdr_info *info, size_t size, void *argument) {
  (void)size;
  struct search *s = argument;
  struct gh_object o = describe(info);
  s->passed |= is_here(&o);
  if (!fits(s, &o)) return 0;
  *s->out = o;
  return 1;
}

bool gh_elf_containing(uintptr_t address, struct gh_object *out) {
  struct search s = {.address = address, .out = out};
  return address && dl_iterate_phdr(visit, &s);
}

bool gh_elf_named(const char *prefix, struct gh_object *out) {
  struct search s = {.prefix = prefix, .out = out};
  return dl_iterate_phdr(visit, &s);
}

bool gh_elf_defining(const char *symbol, const char *prefix, const char *version,
                     struct gh_object *out) {
  struct search s = {
      .symbol = symbol, .prefix = prefix, .version = version, .behind = !prefix, .out = out};
  return dl_iterate_phdr(visit, &s);
}

/* Is the object in front of the hook in the loader's list? Then it stands in front of it in the
 * global scope, too. */
struct order {
  uintptr_t address;
  bool before;
};
static int find_first(struct dl_phdr_info *info, size_t size, void *argument) {
  (void)size;
  struct order *order = argument;
  struct gh_object o = describe(info);
  order->before = order->address >= o.low && order->address < o.high;
  return order->before || is_here(&o);
}
bool gh_elf_before_self(uintptr_t address) {
  struct order order = {.address = address};
  dl_iterate_phdr(find_first, &order);
  return order.before;
}

const struct gh_object *gh_elf_self(void) {
  static __thread struct gh_object self;
  if (!self.high && !gh_elf_containing((uintptr_t)&gh_elf_self, &self)) self.high = 0;
  return &self;
}
