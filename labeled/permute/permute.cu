// The kernel that copies CuPy arrays; `cuda.py` says how it works, what it is compiled for, and
// describes each copy to it.

typedef INDEX Big;  // unsigned: steps backwards count modulo its length
typedef unsigned int Word;
struct Factors { FINAL scale[FEW_FACTORS], shift[FEW_FACTORS]; };
// What `launch_of` says of a copy. Of each axis: its length, bytes of a step along it in the
// source, items of one in the factors, and whether rows are gathered along it; outer axes before
// row axes, the innermost of each first.
struct Axis { Big length, src, factor, picked; };
struct Table {
    Big start;                             // of the first item, in bytes behind the lowest address
    Big outers, fasts, rows;               // how many outer steps, items along the fast axis, rows
    Big fast_step, fast_factor;            // a step along the fast axis, as of any axis
    Big apart;                             // items from one line of the result to the next
    Big tile_outers, tile_fasts, tile_rows, fast_tiles, row_tiles;
    Big pitch, skew;                       // items between lines of a tile, more every LOAD lines
    Big item_step, word_step;              // in a tile, between items and words of the fast axis
    Big n_outer_axes, n_row_axes;
    Big runs, in_one;                      // whether lines are rows; whether rows are one piece
    Big joined;                            // whether all lines of a tile are one
    Big described;                         // where rows are one piece: how many need a place
    Big whole_words;                       // whether every line of the result begins with a word
    Big writer_bits;                       // 2^bits threads share a line of the result
    Axis axis[MAX_AXES];
};
// Where a row of a tile lies in the source, in the tile, and in the factors.
struct Place {
    Big src;
    int tile;
#if VARIES
    Big factor;
#endif
};

// Moves a place to a step of some axes taken as one, and returns the gathered row it is of.
__device__ inline Big walk(const Table& table, int from, int count, Big index, Place& at,
                           Big picked) {
    #pragma unroll 1
    for (int left = count; left > 0; --left) {
        const Axis& axis = table.axis[from++];
        const Big next = left > 1 ? index / axis.length : 0, step = index - next * axis.length;
        at.src += step * axis.src;
#if VARIES
        at.factor += step * axis.factor;
#endif
        if (axis.picked) picked = step;
        index = next;
    }
    return picked;
}

// Small items are loaded and stored a word of four bytes at a time.
#if LOAD > 1
union Loaded { Word word; ITEM item[LOAD]; };
#else
union Loaded { ITEM word, item[1]; };
#endif
#if STORE > 1
typedef Word Stored;
#else
typedef FINAL Stored;
#endif
// How often a length, of which the inverse is given, fits before a place of a tile: a tile is
// small enough for this to be exact.
__device__ inline int times(int at, float inverse) { return (int)floorf((at + 0.5f) * inverse); }

// picked: bytes before the first item of each gathered row
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) permute(
    const char* __restrict__ src, FINAL* __restrict__ dst, const Big* __restrict__ picked,
    const __grid_constant__ Table table,
#if FEW
    const __grid_constant__ Factors factors) {
#if VARIES == 2
    // threads ask for different ones at a time, which arguments answer one after the other
    __shared__ FINAL scale[FEW_FACTORS], shift[FEW_FACTORS];
    for (int at = threadIdx.x; at < FEW_FACTORS; at += THREADS)
        scale[at] = factors.scale[at], shift[at] = factors.shift[at];
#else
    const FINAL* scale = factors.scale;
    const FINAL* shift = factors.shift;
#endif
#else
    const FINAL* __restrict__ scale, const FINAL* __restrict__ shift) {
#endif
    // The tile is kept as it is written: lines of the result, `pitch` items apart.
    __shared__ __align__(8) FINAL tile[TILE_ITEMS];
    __shared__ Place places[MAX_ROWS];
    const int pitch = (int)table.pitch, skew = (int)table.skew, tile_rows = (int)table.tile_rows;
    const Big tiles = table.fast_tiles * table.row_tiles;
    const Big outer_tile = blockIdx.x / tiles, rest = blockIdx.x - outer_tile * tiles;
    // neighbours write next to one another: what they share of a line is joined in the cache
    const Big fast_tile = rest / table.row_tiles;
    const Big outer = outer_tile * table.tile_outers, fast = fast_tile * table.tile_fasts;
    const Big row = (rest - fast_tile * table.row_tiles) * tile_rows;
    const int outers = (int)min(table.tile_outers, table.outers - outer);
    const int fasts = (int)min(table.tile_fasts, table.fasts - fast);
    const int rows = (int)min(table.tile_rows, table.rows - row), n_rows = outers * rows;
    const Big begin = table.runs ? row * table.fasts + fast
                                 : (outer * table.fasts + fast) * table.rows + row;
    const int lead = (int)(begin % STORE);  // a word of the tile is one of the result

    enum { READ_ROWS = THREADS / READERS, MORE_ROWS = READ_ROWS * (UNDER_WAY / WORDS) };
    // the last row stands behind the others, too, for threads that would have nothing to do
    const int described = table.in_one ? min((int)table.described, n_rows)
                                       : (n_rows + MORE_ROWS - 1) / MORE_ROWS * MORE_ROWS;
    for (int at = threadIdx.x; at < described; at += THREADS) {
        // where rows are turned, there are as many of them as squares take
        const int n = min(at, n_rows - 1) / TURNED * TURNED + at % TURNED;
        const int group = outers > 1 ? n / tile_rows : 0;
        const int line = group * fasts;
        Place place = {};
        place.src = table.start + fast * table.fast_step;
#if VARIES && PERIOD == 1
        place.factor = fast * table.fast_factor;
#endif
        Big from = walk(table, 0, (int)table.n_outer_axes, outer + group, place, 0);
        from = walk(table, (int)table.n_outer_axes, (int)table.n_row_axes,
                    row + (n - group * tile_rows), place, from);
#if PICKED
        place.src += picked[from];
#endif
        place.tile = lead + (table.runs ? n * pitch
                                        : line * pitch + (int)((unsigned)line / LOAD) * skew
                                              + (n - group * tile_rows));
        places[at] = place;
    }
    __syncthreads();
#if PURE
    #define CONVERTED(value, place, along) (value)
#elif !SCALED
    #define CONVERTED(value, place, along) ((FINAL)(value))
#else
    #if VARIES == 0
        #define FACTOR(place, along) 0
    #elif VARIES == 1
        #define FACTOR(place, along) (place).factor
    #elif PERIOD == 1
        #define FACTOR(place, along) ((place).factor + (along) * table.fast_factor)
    #else  // they begin again and again, and do so at the first item of a tile
        #define FACTOR(place, along) ((place).factor + (unsigned)(along) % PERIOD)
    #endif
    #define CONVERTED(value, place, along) \
        ((FINAL)(value) * scale[FACTOR(place, along)] + shift[FACTOR(place, along)])
#endif
    const int item_step = (int)table.item_step;
    if (table.in_one) {  // the source of a tile lies in one piece, and is read as one line
        const int length = n_rows * fasts;
        const char* const from = src + places[0].src;
        const int behind = (int)((unsigned long long)from / sizeof(ITEM) % LOAD);
        const float of_fasts = 1.0f / fasts;
        for (int at = threadIdx.x * LOAD - behind; at < length; at += THREADS * LOAD) {
            const ITEM* const items = (const ITEM*)from + at;
            const bool whole = at >= 0 && at + LOAD <= length;
            Loaded loaded = {};
            if (whole) loaded = *(const Loaded*)items;
            int n = times(at, of_fasts), i = at - n * fasts;
            #pragma unroll
            for (int k = 0; k < LOAD; ++k) {
                if (at + k >= 0 && at + k < length)
                    tile[lead + n + i * item_step] = CONVERTED(
                        whole ? loaded.item[k] : items[k], places[min(n, described - 1)], i);
                if (++i == fasts) i = 0, ++n;
            }
        }
    } else {
        const int words = fasts / LOAD, word_step = (int)table.word_step;
        const Big word_bytes = LOAD * table.fast_step;
        for (int word = threadIdx.x % READERS; word < words; word += READERS * WORDS) {
            #pragma unroll 1  // the words under way are what is unrolled
            for (int n = threadIdx.x / READERS * TURNED; n < n_rows; n += MORE_ROWS) {
                // several words are under way at a time: how many decides how fast this is
                Loaded loaded[UNDER_WAY];
                Place place[UNDER_WAY];
                int at[UNDER_WAY];
                #pragma unroll
                for (int u = 0; u < UNDER_WAY; ++u) {
                    const int more = u / TURNED;
                    at[u] = WORDS == 1 ? word : min(word + more % WORDS * READERS, words - 1);
                    place[u] = places[n + u % TURNED + more / WORDS * READ_ROWS * TURNED];
                    loaded[u] = *(const Loaded*)(src + (place[u].src + at[u] * word_bytes));
                }
#if TURNED > 1
                #pragma unroll
                for (int u = 0; u < UNDER_WAY; u += TURNED) {
                    FINAL* const to = tile + (place[u].tile + at[u] * word_step);
                    const Word one = loaded[u].word, two = loaded[u + 1].word;
#if TURNED == 2
                    *(Word*)to = __byte_perm(one, two, 0x5410);
                    *(Word*)(to + item_step) = __byte_perm(one, two, 0x7632);
#else
                    const Word three = loaded[u + 2].word, four = loaded[u + 3].word;
                    const Word low = __byte_perm(one, two, 0x5140);
                    const Word high = __byte_perm(one, two, 0x7362);
                    const Word low_2 = __byte_perm(three, four, 0x5140);
                    const Word high_2 = __byte_perm(three, four, 0x7362);
                    *(Word*)to = __byte_perm(low, low_2, 0x5410);
                    *(Word*)(to + item_step) = __byte_perm(low, low_2, 0x7632);
                    *(Word*)(to + 2 * item_step) = __byte_perm(high, high_2, 0x5410);
                    *(Word*)(to + 3 * item_step) = __byte_perm(high, high_2, 0x7632);
#endif
                }
#else
                #pragma unroll
                for (int u = 0; u < UNDER_WAY; ++u) {
                    FINAL* const to = tile + (place[u].tile + at[u] * word_step);
                    #pragma unroll
                    for (int k = 0; k < LOAD; ++k)
                        to[k * item_step] =
                            CONVERTED(loaded[u].item[k], place[u], at[u] * LOAD + k);
                }
#endif
            }
        }
#if LOAD > 1
        for (int n = threadIdx.x; n < n_rows; n += THREADS) {  // what is less than a word
            const Place place = places[n];
            const ITEM* const line = (const ITEM*)(src + place.src);
            for (int i = words * LOAD; i < fasts; ++i)
                tile[place.tile + words * word_step + (i - words * LOAD) * item_step] =
                    CONVERTED(line[i], place, i);
        }
#endif
    }
    __syncthreads();
    int lines = table.runs ? n_rows : outers * fasts, length = table.runs ? fasts : rows;
    if (table.joined) length *= lines, lines = 1;
    const int writers = 1 << table.writer_bits, write_rows = THREADS >> table.writer_bits;
    const int own = threadIdx.x >> table.writer_bits;
    const int first = lead + own * pitch + (int)((unsigned)own / LOAD) * skew;
    const int next = write_rows * pitch + (int)((unsigned)write_rows / LOAD) * skew;
    const int head = -first & (STORE - 1);  // the same for all lines of a thread
    const Big out = (begin + own * table.apart) * sizeof(FINAL);
    const Big next_out = write_rows * table.apart * sizeof(FINAL);
    for (int at = head + (threadIdx.x & (writers - 1)) * STORE; at + STORE <= length;
         at += writers * STORE) {
        const FINAL* from = tile + (first + at);
        Big to = out + at * sizeof(FINAL);
        #pragma unroll 4
        for (int line = own; line < lines; line += write_rows) {
            *(Stored*)((char*)dst + to) = *(const Stored*)from;
            from += next, to += next_out;
        }
    }
#if STORE > 1
    if (!table.whole_words) {  // items at both ends of a line that lie in a word of others, too
        for (int end = threadIdx.x; end < lines * 2 * STORE; end += THREADS) {
            const int line = (int)((unsigned)end / (2 * STORE)), k = end % (2 * STORE);
            const int from = lead + line * pitch + (int)((unsigned)line / LOAD) * skew;
            const int before = min(-from & (STORE - 1), length);
            const int behind = before + (int)((unsigned)(length - before) / STORE) * STORE;
            const int at = k < STORE ? k : behind + k - STORE;
            if (at < (k < STORE ? before : length))
                dst[begin + line * table.apart + at] = tile[from + at];
        }
    }
#endif
}
