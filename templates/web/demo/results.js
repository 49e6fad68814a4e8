// The outputs as tables. SPDX-License-Identifier: Apache-2.0

const TOP = 5;

/** Names that say that an output has a number for each class. */
const CLASSES = /logit|score|prob|class|categor|predict|softmax|label/i;

/** Whether it is a vector, [N] or [1, N]: what a classifier gives, but an embedding is one too. */
const isVector = ({ dtype, shape, length }) =>
  dtype === "float32" && length > 1 && shape.length > 0 && shape.at(-1) === length;

/** Whether the numbers are shares of a whole, as softmax leaves them. */
const areShares = (values) =>
  Math.abs(values.reduce((a, b) => a + b, 0) - 1) < 1e-3 && values.every((value) => value >= 0);

/** Whether it is known to have a number for each class: by its values, its name, or the classes' names. */
const isOfClasses = (output, values, labels) =>
  isVector(output) && (areShares(values) || CLASSES.test(output.name) || labels.length === output.length);

function softmax(scores) {
  const most = scores.reduce((a, b) => Math.max(a, b));
  const powers = Array.from(scores, (score) => Math.exp(score - most));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / sum);
}

function table(head, rows) {
  const element = document.createElement("table");
  for (const cells of [head, ...rows]) {
    const row = element.insertRow();
    for (const cell of cells) {
      const made = document.createElement(cells === head ? "th" : "td");
      made.textContent = cell;
      row.append(made);
    }
  }
  return element;
}

function top(scores, labels) {
  const order = Array.from(scores.keys()).sort((a, b) => scores[b] - scores[a]);
  const rows = order.slice(0, TOP).map((k) => [labels[k] ?? `class ${k}`, scores[k].toPrecision(5)]);
  const shared = areShares(scores);
  // Each class has a probability of its own: they are shares of nothing.
  if (!shared && scores.every((score) => score >= 0 && score <= 1)) return table(["Top results", "Score"], rows);
  const shares = shared ? scores : softmax(scores);
  return table(
    ["Top results", "Score", "Share"],
    rows.map((row, i) => [...row, `${(100 * shares[order[i]]).toFixed(1)} %`]),
  );
}

function summary(output, values) {
  // Half precision comes as bits.
  if (output.dtype.endsWith("float16")) return table([`First of ${values.length} (bits)`], [[values.slice(0, 8).join(", ")]]);
  const numbers = Array.from(values, Number);
  const least = numbers.reduce((a, b) => Math.min(a, b));
  const most = numbers.reduce((a, b) => Math.max(a, b));
  const mean = numbers.reduce((a, b) => a + b) / numbers.length;
  const first = numbers.slice(0, 8).map((value) => Number(value.toPrecision(5)));
  const norm = Math.sqrt(numbers.reduce((sum, value) => sum + value * value, 0));
  // Of an embedding its length is of interest: 1 where it is normalised.
  const [head, cell] = isVector(output) ? [["Norm"], [norm.toPrecision(5)]] : [[], []];
  return table(
    [`First of ${numbers.length}`, "Least", "Most", "Mean", ...head],
    [[first.join(", "), least.toPrecision(5), most.toPrecision(5), mean.toPrecision(5), ...cell]],
  );
}

/** Shows all outputs in `place`. */
export function show(place, outputs, values, labels) {
  place.replaceChildren(
    ...outputs.flatMap((output) => {
      const title = document.createElement("h2");
      title.textContent = `${output.name} (${output.dtype} ${output.shape.join(" x ") || "scalar"})`;
      const array = values[output.name];
      return [title, isOfClasses(output, array, labels) ? top(array, labels) : summary(output, array)];
    }),
  );
}
