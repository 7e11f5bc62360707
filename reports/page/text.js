// Texts and numbers as people read them.

// What plotly shall write as it is: in its titles, names and labels tags are markup, one may be a link, and dollars
// enclose formulas.
function plain(text, limit = 60) {
  const short = text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
  return short.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("$", "&#36;");
}

// With so many significant digits: 0.0431, 4.31, 112, 14,300.
function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "?";
  if (value === 0) return "0";
  const exponent = Math.floor(Math.log10(Math.abs(value)));
  if (exponent < -4 || exponent > 8) return value.toExponential(digits - 1);
  const rounded = Number(value.toPrecision(digits));
  const decimals = Math.max(digits - 1 - exponent, 0);
  return rounded.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

// "98.10 ± 1.20", "98.312 ± 0.003": with enough decimals for so many digits of the mean and one of what follows ±.
function spread(mean, half, digits = 3) {
  const exponent = (value) => Math.floor(Math.log10(Math.abs(value)));
  if (!Number.isFinite(half)) return number(mean, digits);
  if (!(Math.abs(mean) >= 1e-4 && Math.abs(mean) < 1e9)) return `${number(mean, digits)} ± ${number(half, 2)}`;
  const decimals = Math.max(digits - 1 - exponent(mean), half > 1e-9 * Math.abs(mean) ? -exponent(half) : 0, 0);
  const options = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return [mean, half].map((value) => value.toLocaleString("en-US", options)).join(" ± ");
}

function counted(count, noun) {
  return `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
}

// Numbers by size before texts by letters, whatever is between them.
function compare(a, b) {
  const x = a === "" ? NaN : Number(a);
  const y = b === "" ? NaN : Number(b);
  if (Number.isNaN(x) || Number.isNaN(y)) {
    if (Number.isNaN(x) && Number.isNaN(y)) return a < b ? -1 : a > b ? 1 : 0;
    return Number.isNaN(x) ? 1 : -1;
  }
  return x - y;
}

// A relative path as an address: no name in it is a scheme, a query or an anchor.
function address(path) {
  return path.split("/").map(encodeURIComponent).join("/");
}
