// The items of a window, unpacked: lanes of items in the order of time, a search by name, and sums of a range.

// Bytes of strings of base64, which are all multiples of three bytes long but for the last.
function bytesOf(chunks) {
  const texts = chunks.map((chunk) => atob(chunk));
  const bytes = new Uint8Array(texts.reduce((sum, text) => sum + text.length, 0));
  let at = 0;
  for (const text of texts) for (let i = 0; i < text.length; i++) bytes[at++] = text.charCodeAt(i);
  return bytes;
}

// Unpacks a window once it is looked at.
class TimelineWindow {
  constructor({ label, duration, steps, rows, notes, items }) {
    Object.assign(this, { label, duration, steps, notes });
    this.counts = rows.map(([, , lanes]) => lanes);
    this.total = this.counts.flat().reduce((sum, count) => sum + count, 0);
    this.rows = rows.map(([name, isGpu]) => ({ label: name, isGpu: isGpu === 1, lanes: [] }));
    this.packed = items;
    this.start = null;
  }

  unpack() {
    if (this.start) return this;
    const bytes = bytesOf(this.packed);
    this.packed = null;
    let at = 0;
    // Seven bits a byte, the lowest first. Times exceed 32 bits, for which shifts are too narrow.
    const next = () => {
      let byte = bytes[at++];
      if (byte < 0x80) return byte;
      let number = byte & 0x7f;
      let factor = 128;
      do {
        byte = bytes[at++];
        number += (byte & 0x7f) * factor;
        factor *= 128;
      } while (byte >= 0x80);
      return number;
    };
    const count = this.total;
    this.start = new Float64Array(count);
    this.length = new Float64Array(count);
    this.name = new Uint32Array(count);
    this.lane = new Uint32Array(count);
    // The item that launched a piece of work, or -1.
    this.launcher = new Int32Array(count).fill(-1);
    // The time of a lane's items before each of them.
    this.before = new Float64Array(count + 1);
    this.lanes = [];
    let [item, launcher] = [0, 0];
    this.rows.forEach((row, index) => {
      for (const items of this.counts[index]) {
        const lane = { row: index, from: item, to: item + items, longest: 0 };
        let time = 0;
        for (; item < lane.to; item++) {
          time += next();
          const length = next();
          this.start[item] = time;
          this.length[item] = length;
          this.name[item] = next();
          this.lane[item] = this.lanes.length;
          this.before[item + 1] = this.before[item] + length;
          if (length > lane.longest) lane.longest = length;
          if (row.isGpu) {
            const link = next();
            if (link > 0) {
              const zigzag = link - 1;
              launcher += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
              this.launcher[item] = launcher;
            }
          }
        }
        row.lanes.push(this.lanes.length);
        this.lanes.push(lane);
      }
    });
    return this;
  }

  end(item) {
    return this.start[item] + this.length[item];
  }

  // The first item of a lane, or of a list of its items, that starts at this time or later.
  firstAt(time, from, to, list) {
    let [low, high] = [from, to];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start[list ? list[middle] : middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  stepAt(time) {
    let [low, high] = [0, this.steps.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.steps[middle][1] <= time) low = middle + 1;
      else high = middle;
    }
    const step = this.steps[low - 1];
    return step && time < step[1] + step[2] ? step : null;
  }

  // The busy time of GPUs in equal parts of the window; of threads, if there is no GPU.
  coverage(count) {
    if (this.covered?.length === count) return this.covered;
    this.covered = new Float64Array(count);
    const size = this.duration / count;
    const hasGpu = this.rows.some((row) => row.isGpu);
    const outer = this.rows.filter((row) => row.isGpu === hasGpu).flatMap((row) => row.lanes.slice(0, 1));
    for (const { from, to } of outer.map((lane) => this.lanes[lane])) {
      for (let item = from; item < to; item++) {
        const [start, end] = [this.start[item], this.end(item)];
        const [first, last] = [Math.floor(start / size), Math.min(count - 1, Math.floor(end / size))];
        for (let part = first; part <= last; part++) {
          this.covered[part] += Math.min(end, (part + 1) * size) - Math.max(start, part * size);
        }
      }
    }
    return this.covered;
  }

  // The items with these names: for each lane those in it, and all in the order of time.
  find(names) {
    const lanes = this.lanes.map(({ from, to }) => {
      const found = [];
      for (let item = from; item < to; item++) if (names.has(this.name[item])) found.push(item);
      return found;
    });
    return { lanes, count: lanes.reduce((sum, found) => sum + found.length, 0), ordered: null };
  }

  // The items that were found, in the order of time, which takes a while for hundreds of thousands.
  ordered(found) {
    if (!found.ordered) {
      found.ordered = Uint32Array.from(found.lanes.flat()).sort((a, b) => this.start[a] - this.start[b] || a - b);
    }
    return found.ordered;
  }

  // What launched a piece of work, or the work that a call or span launched, as pairs.
  links(item, most) {
    if (this.launcher[item] >= 0) return [[this.launcher[item], item]];
    const pairs = [];
    for (let work = 0; work < this.total && pairs.length < most; work++) {
      if (this.launcher[work] === item) pairs.push([item, work]);
    }
    return pairs;
  }

  // Sums over a range by row and name: count, time inside the range, and the longest; and the time of each row.
  sums(from, to) {
    const sums = [];
    const rows = this.rows.map((row, index) => {
      const byName = new Map();
      const busy = [];
      row.lanes.forEach((laneIndex, level) => {
        const lane = this.lanes[laneIndex];
        let until = from;
        let covered = 0;
        const last = this.firstAt(to, lane.from, lane.to);
        for (let item = this.firstAt(from - lane.longest, lane.from, lane.to); item < last; item++) {
          const [start, end] = [Math.max(from, this.start[item]), Math.min(to, this.end(item))];
          if (end < start || (end === start && this.length[item] > 0)) continue;
          const sum = byName.get(this.name[item]) ?? { count: 0, time: 0, longest: 0 };
          sum.count += 1;
          sum.time += end - start;
          sum.longest = Math.max(sum.longest, end - start);
          byName.set(this.name[item], sum);
          covered += Math.max(0, end - Math.max(start, until));
          until = Math.max(until, end);
        }
        if (level === 0) busy.push(covered);
      });
      byName.forEach((sum, name) => sums.push({ row: index, name, ...sum }));
      return busy.reduce((sum, time) => sum + time, 0);
    });
    return { rows, sums: sums.sort((a, b) => b.time - a.time) };
  }
}

// What is in a range: how much of it each row covers, and a table by name and row.
function sumsOf(window, from, to, moment, actions) {
  const { rows, sums } = window.sums(from, to);
  const percent = (time) => (100 * time) / (to - from);
  const covered = rows
    .map((time, row) => time > 0 && `${window.rows[row].label} ${UNITS.percent(percent(time))}`)
    .filter(Boolean);
  const columns = [
    ["Name", "text", "what is nested in a span counts for both"],
    ["Track", "word", "the stream or the thread"],
    ["Count", "number", "of items that are in the range, or a part of them"],
    ["Total", "total", "time inside the range"],
    ["Share", "percent", "of the range"],
    ["Mean", "time", "inside the range"],
    ["Longest", "time", "inside the range"],
  ];
  const cells = sums.map(({ row, name, count, time, longest }) => [
    DATA.names[name],
    window.rows[row].label,
    count,
    time,
    percent(time),
    time / count,
    longest,
  ]);
  return [
    el(
      "p",
      {},
      el("b", {}, `Selected: ${UNITS.time(to - from)}`),
      `, from ${moment}. Covered: ${covered.join(", ") || "nothing"}.`,
    ),
    el("div", { class: "tools" }, actions),
    ...tableSection({ id: "sums", title: "Sums of the selection", columns, rows: cells, leftOut: 0 }),
  ];
}
