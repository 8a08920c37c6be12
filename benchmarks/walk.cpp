// The causal random walk of quartet/contexts/walk.py as one would write it in C++: the same draws, the same contexts.
// benchmarks/native.py compiles it, compares what it gives bit for bit, and times both.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#ifdef PLAIN
#define FETCH(cell)
#else
#define FETCH(cell) __builtin_prefetch(cell)  // as the kernel does
#endif

namespace {

struct Graph {
    const int64_t *offsets, *node_rank, *indptr, *entries, *parents_start, *num_keys;
    const int32_t *parents;
    int64_t num_tables;
};

struct Settings {
    int64_t walks, length, restart, max_recent, budget;
};

uint64_t draw(uint64_t key, uint64_t count) {
    uint64_t z = key + count * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

struct Slot {
    int32_t node, number, mark;
};

class Numbers {  // of nodes, in the order of their discovery
    std::vector<Slot> slots;
    uint64_t mask;

  public:
    explicit Numbers(size_t most) {
        size_t size = 64;
        while (size < 4 * most) size *= 2;
        slots.assign(size, Slot{0, 0, -1});
        mask = size - 1;
    }
    Slot &at(int32_t node, int32_t mark) {
        uint64_t place = ((uint64_t)node * 0x9E3779B97F4A7C15ull) >> 40 & mask;
        while (slots[place].mark == mark && slots[place].node != node) place = (place + 1) & mask;
        return slots[place];
    }
};

struct Row {
    int64_t begin;
    int32_t width, node, visits, depth;
};

int64_t visible_end(const int64_t *entries, int64_t begin, int64_t end, int64_t last_rank) {
    if (begin == end || entries[end - 1] >> 32 <= last_rank) return end;
    return std::upper_bound(entries + begin, entries + end - 1, last_rank,
                            [](int64_t rank, int64_t entry) { return rank < entry >> 32; }) - entries;
}

class Walker {
    const Graph graph;
    const Settings settings;
    Numbers numbers;
    std::vector<Row> rows;
    std::vector<int32_t> at, ranked, place_of, starts, cursor, beside, queue, named, child;
    std::vector<uint8_t> steps, far;
    std::vector<int64_t> target, ends, rests;

  public:
    Walker(const Graph &graph, const Settings &settings)
        : graph(graph), settings(settings), numbers(settings.walks * settings.length + 1),
          rows(settings.walks * settings.length + 1), at(settings.walks), ranked(settings.budget),
          place_of(rows.size()), starts(rows.size() + settings.budget + 1), queue(settings.budget),
          steps(settings.walks), far(settings.budget), target(settings.walks) {}

    int64_t walk(int64_t seed_node, int64_t last_rank, uint64_t key, int32_t mark) {
        const auto [walks, length, restart, max_recent, budget] = settings;
        Slot &own = numbers.at(seed_node, mark);
        own = {(int32_t)seed_node, 0, mark};
        rows[0] = {0, 0, (int32_t)seed_node, 0, 0};
        find_ranges(0, 1, last_rank);
        std::fill(at.begin(), at.end(), 0);
        std::fill(steps.begin(), steps.end(), 0);
        int64_t num = 1;
        for (int64_t step = 0; step < length; step++) {
            for (int64_t walk = 0; walk < walks; walk++) {
                const uint64_t bits = draw(key, step * walks + walk);
                const Row &now = rows[at[walk]];
                if ((int64_t)(bits >> 32) < restart || now.width == 0) {
                    target[walk] = -1;
                } else {
                    target[walk] = now.begin + (int64_t)(((bits & 0xFFFFFFFF) * (uint64_t)now.width) >> 32);
                    FETCH(&graph.entries[target[walk]]);
                }
            }
            const int64_t first_new = num;
            for (int64_t walk = 0; walk < walks; walk++) {
                if (target[walk] < 0) {
                    at[walk] = steps[walk] = 0;
                    continue;
                }
                const int32_t node = (int32_t)(graph.entries[target[walk]] & 0xFFFFFFFF);
                Slot &slot = numbers.at(node, mark);
                if (slot.mark != mark) {
                    slot = {node, (int32_t)num, mark};
                    rows[num++] = {0, 0, node, 0, 255};
                }
                Row &row = rows[slot.number];
                at[walk] = slot.number;
                row.visits++;
                row.depth = std::min<int32_t>(row.depth, ++steps[walk]);
            }
            if (step + 1 < length) find_ranges(first_new, num, last_rank);
        }
        return num;
    }

    std::pair<const int32_t *, int64_t> parents_of(int32_t node) const {
        int64_t table = 0;
        while (node >= graph.offsets[table + 1]) table++;
        const int64_t width = graph.num_keys[table];
        return {graph.parents + graph.parents_start[table] + (node - graph.offsets[table]) * width, width};
    }

    void find_ranges(int64_t first, int64_t last, int64_t last_rank) {
        for (int64_t number = first; number < last; number++) FETCH(&graph.indptr[rows[number].node]);
        for (int64_t number = first; number < last; number++) {
            const int64_t begin = graph.indptr[rows[number].node], end = graph.indptr[rows[number].node + 1];
            rows[number].begin = begin;
            rows[number].width = (int32_t)(end - begin);
            FETCH(&graph.entries[end - 1]);
            FETCH(parents_of(rows[number].node).first);
        }
        for (int64_t number = first; number < last; number++) {
            Row &row = rows[number];
            const int64_t end = visible_end(graph.entries, row.begin, row.begin + row.width, last_rank);
            int64_t count = end - row.begin;
            if (settings.max_recent && count > settings.max_recent) count = settings.max_recent;
            row.begin = end - count;
            row.width = count;
        }
    }

    int64_t rank(int64_t num) {  // a stable counting sort by visits
        int32_t highest = 0;
        for (int64_t number = 1; number < num; number++) highest = std::max(highest, rows[number].visits);
        std::fill_n(starts.begin(), highest + 1, 0);
        for (int64_t number = 1; number < num; number++) starts[rows[number].visits]++;
        int32_t total = 0;
        for (int32_t count = highest; count >= 0; count--) {
            const int32_t size = starts[count];
            starts[count] = total;
            total += size;
        }
        for (int64_t number = 1; number < num; number++) {
            const int32_t place = starts[rows[number].visits]++;
            if (place < settings.budget - 1) ranked[place] = number;
        }
        return std::min<int64_t>(total, settings.budget - 1);
    }

    void fill_counts(int64_t count, uint16_t *counts) {
        const int64_t slots = settings.budget - 1;
        int64_t total = 0, left = slots - count, place = 0;
        const int64_t free = left;
        for (int64_t p = 0; p < count; p++) total += rows[ranked[p]].visits;
        ends.clear();
        rests.clear();
        while (place < count) {
            const int64_t seen = rows[ranked[place]].visits, extra = free * seen / total;
            for (; place < count && rows[ranked[place]].visits == seen; place++) {
                counts[place + 1] = 1 + extra;
                left -= extra;
            }
            ends.push_back(place);
            rests.push_back(free * seen % total);
        }
        while (left > 0) {
            const int64_t best = std::max_element(rests.begin(), rests.end()) - rests.begin();
            const int64_t first = best ? ends[best - 1] : 0, last = std::min(ends[best], first + left);
            for (int64_t p = first; p < last; p++) counts[p + 1]++;
            left -= ends[best] - first;
            rests[best] = -1;
        }
    }

    void edges(const int32_t *node, int64_t count, int32_t mark, std::vector<uint16_t> &edge) {
        named.clear();
        child.clear();
        for (int64_t place = 0; place < count; place++) {
            const auto [first, width] = parents_of(node[place]);
            for (int64_t slot = 0; slot < width; slot++) {
                named.push_back(first[slot]);
                child.push_back(place);
            }
        }
        for (size_t spot = 0; spot < named.size(); spot++) {
            if (named[spot] < 0) continue;
            const Slot &slot = numbers.at(named[spot], mark);
            if (slot.mark == mark && place_of[slot.number] >= 0) {
                edge.push_back(child[spot]);
                edge.push_back(place_of[slot.number]);
            }
        }
    }

    void shorten(uint8_t *hop, int64_t count, const uint16_t *edge, int64_t num) {
        std::fill_n(starts.begin(), count + 1, 0);
        for (int64_t end = 0; end < 2 * num; end++) starts[edge[end] + 1]++;
        for (int64_t place = 0; place < count; place++) starts[place + 1] += starts[place];
        cursor.assign(starts.begin(), starts.begin() + count);
        beside.resize(2 * num);
        for (int64_t end = 0; end < 2 * num; end++) beside[cursor[edge[end]]++] = edge[end ^ 1];
        std::fill_n(far.begin(), count, 255);
        far[0] = queue[0] = 0;
        for (int64_t head = 0, tail = 1; head < tail; head++) {
            const int32_t place = queue[head];
            for (int32_t spot = starts[place]; spot < starts[place + 1]; spot++) {
                const int32_t other = beside[spot];
                if (far[other] == 255) {
                    far[other] = std::min(far[place] + 1, 254);
                    queue[tail++] = other;
                }
            }
        }
        for (int64_t place = 0; place < count; place++) hop[place] = std::min(hop[place], far[place]);
    }

    int64_t local(int64_t seed_node, int64_t last_rank, uint64_t key, int32_t mark, int32_t *node, uint8_t *hop,
                  uint16_t *counts, std::vector<uint16_t> &edge) {
        const int64_t num = walk(seed_node, last_rank, key, mark), count = rank(num);
        std::fill_n(place_of.begin(), num, -1);
        place_of[0] = 0;
        node[0] = seed_node;
        hop[0] = 0;
        counts[0] = 1;
        for (int64_t place = 0; place < count; place++) {
            const Row &row = rows[ranked[place]];
            place_of[ranked[place]] = place + 1;
            node[place + 1] = row.node;
            hop[place + 1] = row.depth;
        }
        if (count) fill_counts(count, counts);
        const size_t first = edge.size();
        edges(node, count + 1, mark, edge);
        shorten(hop, count + 1, edge.data() + first, (int64_t)(edge.size() - first) / 2);
        return count + 1;
    }
};

}  // namespace

// The arrays have room for `budget` rows and all their links of each seed; what is written stands without gaps.
extern "C" void sample(const Graph *graph, const Settings *settings, int64_t num_seeds, const int64_t *nodes,
                       const int64_t *last_ranks, const uint64_t *keys, int64_t *local_start, int64_t *edge_start,
                       int32_t *node, uint8_t *hop, uint16_t *counts, uint16_t *edge) {
    Walker walker(*graph, *settings);
    std::vector<uint16_t> found;
    local_start[0] = edge_start[0] = 0;
    for (int64_t seed = 0; seed < num_seeds; seed++) {
        const int64_t at = local_start[seed];
        found.clear();
        local_start[seed + 1] = at + walker.local(nodes[seed], last_ranks[seed], keys[seed], (int32_t)seed,
                                                  node + at, hop + at, counts + at, found);
        std::memcpy(edge + 2 * edge_start[seed], found.data(), 2 * found.size());
        edge_start[seed + 1] = edge_start[seed] + (int64_t)found.size() / 2;
    }
}
