/* Values by number (nvmlDeviceGetFieldValues), and NVLink, most of which is told in that way. */
#include "devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned id; const char *key; ValueType type; } Named;

/* Fields that other calls tell too, so that both say the same. Any other: `field.<id>`, or `field.<id>.<scope>`. */
static const Named named[] = {
    {1, "ecc_mode", TYPE_UINT},
    {2, "ecc_mode", TYPE_UINT},
    {3, "ecc.corrected.volatile", TYPE_ULONGLONG},
    {4, "ecc.uncorrected.volatile", TYPE_ULONGLONG},
    {5, "ecc.corrected.aggregate", TYPE_ULONGLONG},
    {6, "ecc.uncorrected.aggregate", TYPE_ULONGLONG},
    {29, "retired.corrected", TYPE_ULONGLONG},
    {30, "retired.uncorrected", TYPE_ULONGLONG},
    {31, "retired.pending", TYPE_ULONGLONG},
    {38, "nvlink_error.crc_flit", TYPE_ULONGLONG},
    {45, "nvlink_error.crc_data", TYPE_ULONGLONG},
    {52, "nvlink_error.replay", TYPE_ULONGLONG},
    {59, "nvlink_error.recovery", TYPE_ULONGLONG},
    {74, "throttle_ns.power_cap", TYPE_ULONGLONG},
    {75, "throttle_ns.thermal", TYPE_ULONGLONG},
    {76, "throttle_ns.sync_boost", TYPE_ULONGLONG},
    {77, "throttle_ns.board_limit", TYPE_ULONGLONG},
    {78, "throttle_ns.low_utilization", TYPE_ULONGLONG},
    {79, "throttle_ns.reliability", TYPE_ULONGLONG},
    {80, "throttle_ns.application_clocks", TYPE_ULONGLONG},
    {81, "throttle_ns.base_clocks", TYPE_ULONGLONG},
    {82, "temperature_memory", TYPE_UINT},
    {83, "energy_mj", TYPE_ULONGLONG},
    {91, "nvlinks", TYPE_UINT},
    {94, "pcie_replays", TYPE_ULONGLONG},
    {142, "remapped.correctable", TYPE_UINT},
    {143, "remapped.uncorrectable", TYPE_UINT},
    {144, "remapped.pending", TYPE_UINT},
    {145, "remapped.failure", TYPE_UINT},
    {185, "power_mw", TYPE_UINT},
    {186, "power_instant_mw", TYPE_UINT},
    {187, "power_min_limit_mw", TYPE_UINT},
    {188, "power_max_limit_mw", TYPE_UINT},
    {189, "power_default_limit_mw", TYPE_UINT},
    {190, "power_limit_mw", TYPE_UINT},
    {191, "energy_mj", TYPE_ULONGLONG},
    {197, "pcie_tx_bytes", TYPE_ULONGLONG},
    {198, "pcie_rx_bytes", TYPE_ULONGLONG},
    {230, "recovery_action", TYPE_UINT},
    {269, "throttle_ns.software_thermal", TYPE_ULONGLONG},
    {270, "throttle_ns.hardware_thermal", TYPE_ULONGLONG},
    {271, "throttle_ns.power_brake", TYPE_ULONGLONG},
};

/* Counters of which scopeId picks the link: 0 if the caller says nothing, all ones for the sum. */
static const Named by_link[] = {
    {138, "nvlink_tx_kib", TYPE_ULONGLONG},          {139, "nvlink_rx_kib", TYPE_ULONGLONG},
    {140, "nvlink_raw_tx_kib", TYPE_ULONGLONG},      {141, "nvlink_raw_rx_kib", TYPE_ULONGLONG},
    {161, "nvlink_error.replay", TYPE_ULONGLONG},    {162, "nvlink_error.recovery", TYPE_ULONGLONG},
    {163, "nvlink_error.crc_flit", TYPE_ULONGLONG},
};

static const Named *with_id(const Named *list, size_t count, unsigned id) {
    for (size_t i = 0; i < count; i++)
        if (list[i].id == id) return &list[i];
    return NULL;
}

/* A link has its equal part of the sum; what does not divide is at link 0, and so are errors. */
static Return of_link(Handle device, const char *key, unsigned link, uint64_t *out) {
    unsigned links;
    uint64_t sum;
    if (device_uint(device, "nvlinks", &links) != OK || device_number(device, key, &sum) != OK) return NOT_SUPPORTED;
    if (link != ALL_SCOPES && link >= links) return INVALID_ARGUMENT;
    uint64_t part = strncmp(key, "nvlink_error.", 13) ? sum / links : 0;
    *out = link == ALL_SCOPES ? sum : link ? part : sum - part * (links - 1);
    return OK;
}

static void put(Field *field, ValueType type, uint64_t number) {
    field->type = type;
    field->value.ull = 0;
    if (type == TYPE_UINT) field->value.u = (unsigned)number;
    else field->value.ull = number;
}

/* What the state says of this very number; a value with a point is a double, any other an unsigned long long. */
static bool scripted(Handle device, Field *field) {
    char key[64], text[TEXT_SIZE];
    uint64_t error;
    snprintf(key, sizeof key, "field.%u.error", field->id);
    if (device_number(device, key, &error) == OK) {
        field->result = (unsigned)error;
        return true;
    }
    snprintf(key, sizeof key, "field.%u.%u", field->id, field->scope);
    if (device_text(device, key, text, sizeof text) != OK) {
        snprintf(key, sizeof key, "field.%u", field->id);
        if (device_text(device, key, text, sizeof text) != OK) return false;
    }
    field->result = OK;
    put(field, TYPE_ULONGLONG, strtoull(text, NULL, 0));
    if (!strchr(text, '.')) return true;
    field->type = TYPE_DOUBLE;
    field->value.d = strtod(text, NULL);
    return true;
}

static bool take_any(const char *rest, const char *value, void *into) {
    (void)rest, (void)value;
    *(bool *)into = true;
    return false;
}

static void answer(Handle device, bool any_scripted, Field *field) {
    uint64_t number;
    field->timestamp_us = realtime_us();
    field->latency_us = 0;
    if (any_scripted && scripted(device, field)) return;
    const Named *one = with_id(by_link, sizeof by_link / sizeof *by_link, field->id);
    if (one) {
        field->result = of_link(device, one->key, field->scope, &number);
    } else {
        one = with_id(named, sizeof named / sizeof *named, field->id);
        field->result = one ? device_number(device, one->key, &number) : NOT_SUPPORTED;
    }
    if (field->result == OK) put(field, one->type, number);
}

EXPORT Return nvmlDeviceGetFieldValues(Handle device, int count, Field *fields) {
    BEGIN_ON(device);
    if (count < 1 || !fields) END(INVALID_ARGUMENT);
    bool any_scripted = false;
    state_each(device->gpu, device->instance, "field.", take_any, &any_scripted);
    for (int i = 0; i < count; i++) answer(device, any_scripted, &fields[i]);
    END(OK);
}

/* `nvlinks_down` lists links that are not active, as `3 5`. */
EXPORT Return nvmlDeviceGetNvLinkState(Handle device, unsigned link, unsigned *out) {
    BEGIN_ON(device);
    unsigned links;
    char text[TEXT_SIZE];
    if (device_uint(device, "nvlinks", &links) != OK) END(NOT_SUPPORTED);
    if (link >= links) END(INVALID_ARGUMENT);
    *out = 1;
    if (device_text(device, "nvlinks_down", text, sizeof text) != OK) END(OK);
    for (char *rest = text, *word; (word = strsep(&rest, " "));)
        if (*word && (unsigned)atoi(word) == link) *out = 0;
    END(OK);
}

EXPORT Return nvmlDeviceGetNvLinkErrorCounter(Handle device, unsigned link, unsigned counter, uint64_t *out) {
    static const char *const keys[4] = {
        "nvlink_error.replay", "nvlink_error.recovery", "nvlink_error.crc_flit", "nvlink_error.crc_data"};
    BEGIN_ON(device);
    if (counter >= 4 || link == ALL_SCOPES) END(INVALID_ARGUMENT);
    END(of_link(device, keys[counter], link, out));
}
