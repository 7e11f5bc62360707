// A table of which only the rows in view are elements, so that ten thousand are as quick as ten.

const SPARE = 15; // rows above and below those in view
const MOST_PRINTED = 2000;

// `cells(row)` gives a row's cells, of which one holds its button; `open(row, step)` is called on a click or Enter.
class VirtualTable {
  constructor(box, body, cells, open, width) {
    Object.assign(this, { box, body, cells, open, width });
    this.rows = [];
    this.current = 0;
    this.isPrinting = false;
    this.height = 33;
    box.addEventListener("scroll", () => this.render());
    box.addEventListener("keydown", (event) => this.move(event));
    body.addEventListener("click", (event) => {
      const line = event.target.closest("tr[data-place]");
      if (line && !event.target.closest("a")) this.choose(Number(line.dataset.place));
    });
    new ResizeObserver(() => this.render()).observe(box);
  }

  show(rows) {
    this.rows = rows;
    this.current = 0;
    this.box.scrollTop = 0;
    this.render(true);
  }

  choose(place) {
    this.current = place;
    this.render(true);
    const walk = (at) => (by) => (this.rows[at + by] === undefined ? null : { row: this.rows[at + by], step: walk(at + by) });
    this.open(this.rows[place], walk(place));
  }

  // Arrows, pages, Home and End move from row to row; Enter opens one as a button does.
  move(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 2);
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined || event.target.closest("thead")) return;
    event.preventDefault();
    const isInside = this.body.contains(document.activeElement);
    const next = isInside ? this.current + by : this.current;
    this.current = Math.min(Math.max(next, 0), this.rows.length - 1);
    this.reveal();
    this.render(true);
    this.body.querySelector(`tr[data-place="${this.current}"] button`)?.focus({ preventScroll: true });
  }

  reveal() {
    const head = this.box.querySelector("thead").offsetHeight;
    const top = this.current * this.height;
    const room = this.box.clientHeight - head - this.height;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top > this.box.scrollTop + room) this.box.scrollTop = top - room;
  }

  print(isPrinting) {
    this.isPrinting = isPrinting;
    this.render(true);
  }

  render(isChanged = false) {
    const count = this.rows.length;
    const view = Math.ceil(this.box.clientHeight / this.height) + 2 * SPARE;
    const wanted = Math.floor(this.box.scrollTop / this.height) - SPARE;
    const first = this.isPrinting ? 0 : Math.max(0, Math.min(wanted, count - view));
    const last = Math.min(count, this.isPrinting ? MOST_PRINTED : first + view);
    if (!isChanged && first === this.first && last === this.last) return;
    const hadFocus = this.body.contains(document.activeElement);
    [this.first, this.last] = [first, last];
    const lines = [];
    for (let place = first; place < last; place++) lines.push(this.line(place));
    this.body.replaceChildren(this.space(first), ...lines, this.space(this.isPrinting ? 0 : count - last));
    if (lines.length && !this.isPrinting) this.height = lines[0].getBoundingClientRect().height || this.height;
    if (hadFocus) {
      const button = this.body.querySelector(`tr[data-place="${this.current}"] button`);
      (button ?? this.box).focus({ preventScroll: true });
    }
  }

  line(place) {
    const line = make("tr", { "data-place": place, "aria-rowindex": place + 2 }, ...this.cells(this.rows[place]));
    line.querySelector("button").tabIndex = place === this.current ? 0 : -1;
    return line;
  }

  space(rows) {
    const cell = make("td", { colspan: this.width });
    cell.style.height = `${rows * this.height}px`;
    return make("tr", { class: "space", "aria-hidden": "true", hidden: !rows }, cell);
  }
}
