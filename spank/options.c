#include "options.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define QUOTED_BYTES 200

struct mode_row {
  const char *name;
  enum gh_mode mode;
};

struct key_row {
  const char *name;
  const char *allowed;
  bool (*valid)(const char *value);
};

#define UNIT 2000000L /* 1.0 in the half millionths below */

/* Decimal without sign or exponent, in half millionths: an odd number where further digits
 * followed, so that comparisons with whole millionths are exact. -1 where it is none. Not
 * strtod: that follows the user's locale, where 0.1 may have to be written 0,1. */
static long half_millionths(const char *value) {
  long whole = 0, fraction = 0, digit = UNIT / 10;
  bool more = false;
  const char *p = value;
  for (; isdigit((unsigned char)*p) && whole < 1000000; p++) whole = whole * 10 + (*p - '0');
  if (p == value) return -1;
  if (*p == '.') {
    for (p++; isdigit((unsigned char)*p); p++, digit /= 10) {
      fraction += digit > 1 ? digit * (*p - '0') : 0;
      more = more || (digit <= 1 && *p != '0');
    }
  }
  return *p == '\0' ? whole * UNIT + fraction + more : -1;
}

static bool valid_threshold(const char *value) {
  long x = half_millionths(value);
  return x >= UNIT / 50 && x <= UNIT;
}

static bool valid_warmup(const char *value) {
  long x = strchr(value, '.') ? -1 : half_millionths(value);
  return x >= 5 * UNIT && x <= 1000 * UNIT;
}

static bool valid_path(const char *value) {
  if (value[0] != '/') return false;
  for (const char *p = value; *p; p++)
    if (iscntrl((unsigned char)*p)) return false;
  return true;
}

static bool valid_freeze(const char *value) {
  return strcmp(value, "never") == 0 || strcmp(value, "optin") == 0;
}

static bool valid_s4(const char *value) {
  return strcmp(value, "never") == 0 || strcmp(value, "allow") == 0;
}

static const struct mode_row MODES[] = {
    {"on", GH_OPT_ON}, {"observe", GH_OPT_OBSERVE}, {"off", GH_OPT_OFF}};

static const struct key_row KEYS[GH_KEY_COUNT] = {
    [GH_KEY_THRESHOLD] = {"threshold", "0.02..1.0", valid_threshold},
    [GH_KEY_WARMUP] = {"warmup", "5..1000", valid_warmup},
    [GH_KEY_RECORD_DIR] = {"record_dir", "ABSOLUTE_PATH", valid_path},
    [GH_KEY_FREEZE] = {"freeze", "never|optin", valid_freeze},
    [GH_KEY_S4] = {"s4", "never|allow", valid_s4}};

static const size_t MODE_COUNT = sizeof(MODES) / sizeof(MODES[0]);

const char *gh_mode_name(enum gh_mode mode) {
  for (size_t i = 0; i < MODE_COUNT; i++)
    if (MODES[i].mode == mode) return MODES[i].name;
  return "off";
}

const char *gh_key_name(enum gh_key key) { return KEYS[key].name; }

void gh_spec_off(struct gh_spec *spec) {
  memset(spec, 0, sizeof(*spec));
  spec->mode = GH_OPT_OFF;
}

/* TEXT as it may be shown on a terminal: cut, control characters replaced. */
static void quoted(char out[QUOTED_BYTES], const char *text) {
  size_t i = 0;
  for (; text[i] && i < QUOTED_BYTES - 4; i++)
    out[i] = iscntrl((unsigned char)text[i]) ? '?' : text[i];
  snprintf(out + i, QUOTED_BYTES - i, "%s", text[i] ? "..." : "");
}

static void allowed(char out[QUOTED_BYTES]) {
  size_t used = (size_t)snprintf(out, QUOTED_BYTES, "modes: ");
  for (size_t i = 0; i < MODE_COUNT; i++)
    used += (size_t)snprintf(out + used, QUOTED_BYTES - used, "%s%s", i ? ", " : "", MODES[i].name);
  used += (size_t)snprintf(out + used, QUOTED_BYTES - used, "; keys: ");
  for (size_t i = 0; i < GH_KEY_COUNT; i++)
    used += (size_t)snprintf(out + used, QUOTED_BYTES - used, "%s%s=%s", i ? ", " : "",
                             KEYS[i].name, KEYS[i].allowed);
}

static int refuse(char *why, const char *text, const char *what, const char *part) {
  char whole[QUOTED_BYTES], offending[QUOTED_BYTES], list[QUOTED_BYTES];
  quoted(whole, text);
  quoted(offending, part);
  allowed(list);
  snprintf(why, GH_MESSAGE_BYTES, "\"%s\": %s \"%s\" (%s)", whole, what, offending, list);
  return -1;
}

static int parse_mode(const char *word, enum gh_mode *mode) {
  for (size_t i = 0; i < MODE_COUNT; i++) {
    if (strcmp(word, MODES[i].name) == 0) {
      *mode = MODES[i].mode;
      return 0;
    }
  }
  return -1;
}

static int parse_pair(const char *text, char *pair, struct gh_spec *spec, char *why) {
  char *equals = strchr(pair, '=');
  if (!equals) return refuse(why, text, "expected key=value, got", pair);
  *equals = '\0';
  for (size_t i = 0; i < GH_KEY_COUNT; i++) {
    if (strcmp(pair, KEYS[i].name) != 0) continue;
    *equals = '=';
    if (spec->value[i][0]) return refuse(why, text, "key given twice:", pair);
    if (strlen(equals + 1) >= GH_VALUE_BYTES || !KEYS[i].valid(equals + 1))
      return refuse(why, text, "value not allowed:", pair);
    memcpy(spec->value[i], equals + 1, strlen(equals + 1) + 1);
    return 0;
  }
  return refuse(why, text, "unknown key", pair);
}

int gh_spec_parse(const char *text, struct gh_spec *spec, char *why) {
  char work[GH_TEXT_BYTES];
  gh_spec_off(spec);
  if (strlen(text) >= sizeof(work)) return refuse(why, text, "longer than 2047 bytes:", text);
  memcpy(work, text, strlen(text) + 1);
  char *rest = work;
  char *word = strsep(&rest, ",");
  if (parse_mode(word, &spec->mode)) return refuse(why, text, "unknown mode", word);
  while ((word = strsep(&rest, ",")))
    if (parse_pair(text, word, spec, why)) return -1;
  return 0;
}

int gh_spec_print(const struct gh_spec *spec, char *out) {
  size_t used = (size_t)snprintf(out, GH_TEXT_BYTES, "%s", gh_mode_name(spec->mode));
  for (size_t i = 0; i < GH_KEY_COUNT; i++) {
    if (!spec->value[i][0]) continue;
    used +=
        (size_t)snprintf(out + used, GH_TEXT_BYTES - used, ",%s=%s", KEYS[i].name, spec->value[i]);
    if (used >= GH_TEXT_BYTES) return -1;
  }
  return 0;
}
