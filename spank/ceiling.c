#include "ceiling.h"

#include <stdio.h>
#include <string.h>

static const char *const KINDS[GH_ALLOW_COUNT] = {"partition", "account"};

void gh_ceiling_none(struct gh_ceiling *ceiling) {
  memset(ceiling, 0, sizeof(*ceiling));
  ceiling->max_mode = GH_OPT_ON;
}

/* ---- reading ---- */

static int take_max_mode(struct gh_ceiling *ceiling, const char *value, char *why) {
  static const enum gh_mode MODES[] = {GH_OPT_OFF, GH_OPT_OBSERVE, GH_OPT_ON};
  for (size_t i = 0; i < sizeof(MODES) / sizeof(MODES[0]); i++) {
    if (strcmp(value, gh_mode_name(MODES[i])) != 0) continue;
    if (MODES[i] < ceiling->max_mode) ceiling->max_mode = MODES[i];
    return 0;
  }
  ceiling->max_mode = GH_OPT_OFF;
  snprintf(why, GH_MESSAGE_BYTES, "use off, observe or on; taken as max_mode=off until then");
  return -1;
}

static int take_never(bool *never, const char *value, const char *other, char *why) {
  if (strcmp(value, other) == 0) return 0;
  *never = true;
  if (strcmp(value, "never") == 0) return 0;
  snprintf(why, GH_MESSAGE_BYTES, "use never or %s; taken as never until then", other);
  return -1;
}

/* "a+b" to the end of "+...+"; -1 where a name is empty or there is no room. */
static int add_names(char list[GH_ALLOW_BYTES], const char *names, size_t length) {
  size_t used = strlen(list);
  if (length == 0 || names[0] == '+' || names[length - 1] == '+') return -1;
  if (memmem(names, length, "++", 2)) return -1;
  if (used + length + 3 > GH_ALLOW_BYTES) return -1;
  snprintf(list + used, GH_ALLOW_BYTES - used, "%s%.*s+", used ? "" : "+", (int)length, names);
  return 0;
}

/* One "partition:a+b". */
static int take_names(struct gh_ceiling *ceiling, const char *part, size_t length) {
  for (size_t kind = 0; kind < GH_ALLOW_COUNT; kind++) {
    size_t head = strlen(KINDS[kind]);
    if (length <= head || strncmp(part, KINDS[kind], head) != 0 || part[head] != ':') continue;
    ceiling->restricted[kind] = true;
    return add_names(ceiling->names[kind], part + head + 1, length - head - 1);
  }
  return -1;
}

static int take_allow(struct gh_ceiling *ceiling, const char *value, char *why) {
  for (const char *part = value;; part++) {
    size_t length = strcspn(part, ",");
    if (take_names(ceiling, part, length)) {
      ceiling->allow_unreadable = true;
      snprintf(why, GH_MESSAGE_BYTES,
               "use partition:NAME+NAME,account:NAME+NAME; nobody is allowed until then");
      return -1;
    }
    part += length;
    if (!*part) return 0;
  }
}

int gh_ceiling_take(struct gh_ceiling *ceiling, const char *argument, char *why) {
  if (strncmp(argument, "max_mode=", 9) == 0) return take_max_mode(ceiling, argument + 9, why);
  if (strncmp(argument, "freeze=", 7) == 0)
    return take_never(&ceiling->freeze_never, argument + 7, "optin", why);
  if (strncmp(argument, "s4=", 3) == 0)
    return take_never(&ceiling->s4_never, argument + 3, "allow", why);
  if (strncmp(argument, "allow=", 6) == 0) return take_allow(ceiling, argument + 6, why);
  return 1;
}

/* ---- applying ---- */

static void lower_key(struct gh_spec *spec, enum gh_key key, bool never, char *said) {
  size_t used = strlen(said);
  if (!never || strcmp(spec->value[key], "never") == 0) return;
  if (spec->value[key][0])
    snprintf(said + used, GH_MESSAGE_BYTES - used, "%s%s=%s was asked for, the site allows never",
             used ? "; " : "", gh_key_name(key), spec->value[key]);
  snprintf(spec->value[key], GH_VALUE_BYTES, "never");
}

void gh_ceiling_lower(const struct gh_ceiling *ceiling, struct gh_spec *spec, char *said) {
  said[0] = '\0';
  if (spec->mode > ceiling->max_mode) {
    const char *most = gh_mode_name(ceiling->max_mode);
    snprintf(said, GH_MESSAGE_BYTES, "%s was asked for, the site allows %s (max_mode=%s)",
             gh_mode_name(spec->mode), most, most);
    spec->mode = ceiling->max_mode;
  }
  lower_key(spec, GH_KEY_FREEZE, ceiling->freeze_never, said);
  lower_key(spec, GH_KEY_S4, ceiling->s4_never, said);
}

bool gh_ceiling_asks(const struct gh_ceiling *ceiling) {
  return ceiling->allow_unreadable || ceiling->restricted[GH_ALLOW_PARTITION] ||
         ceiling->restricted[GH_ALLOW_ACCOUNT];
}

static bool is_listed(const char *list, const char *name) {
  size_t length = strlen(name);
  if (length == 0 || strchr(name, '+')) return false;
  for (const char *at = list; (at = strstr(at, name)); at++)
    if (at > list && at[-1] == '+' && at[length] == '+') return true;
  return false;
}

bool gh_ceiling_admits(const struct gh_ceiling *ceiling, const char *partition, const char *account,
                       char *why) {
  const char *const names[GH_ALLOW_COUNT] = {partition, account};
  if (ceiling->allow_unreadable) {
    snprintf(why, GH_MESSAGE_BYTES, "not enabled by the site (its allow= can't be read)");
    return false;
  }
  for (size_t kind = 0; kind < GH_ALLOW_COUNT; kind++) {
    if (!ceiling->restricted[kind] || is_listed(ceiling->names[kind], names[kind])) continue;
    snprintf(why, GH_MESSAGE_BYTES, "not enabled for %s %.200s by the site", KINDS[kind],
             names[kind][0] ? names[kind] : "(none)");
    return false;
  }
  return true;
}
