// The outputs as tables. SPDX-License-Identifier: Apache-2.0

const TOP = 5;

/** Whether it is a score for each class: [N], or [1, N]. */
const isScores = ({ dtype, shape, length }) =>
  dtype === "float32" && length > 1 && shape.length > 0 && shape.at(-1) === length;

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
  // Scores that are shares already stay as they are.
  const sum = scores.reduce((a, b) => a + b, 0);
  const shares = Math.abs(sum - 1) < 1e-3 && scores.every((score) => score >= 0) ? scores : softmax(scores);
  const order = Array.from(scores.keys()).sort((a, b) => scores[b] - scores[a]);
  const rows = order
    .slice(0, TOP)
    .map((k) => [labels[k] ?? `class ${k}`, scores[k].toPrecision(5), `${(100 * shares[k]).toFixed(1)} %`]);
  return table(["Top results", "Score", "Share"], rows);
}

function summary({ dtype }, values) {
  // Half precision comes as bits.
  if (dtype.endsWith("float16")) return table([`First of ${values.length} (bits)`], [[values.slice(0, 8).join(", ")]]);
  const numbers = Array.from(values, Number);
  const least = numbers.reduce((a, b) => Math.min(a, b));
  const most = numbers.reduce((a, b) => Math.max(a, b));
  const mean = numbers.reduce((a, b) => a + b) / numbers.length;
  const first = numbers.slice(0, 8).map((value) => Number(value.toPrecision(5)));
  return table(
    ["Least", "Most", "Mean", "First"],
    [[least.toPrecision(5), most.toPrecision(5), mean.toPrecision(5), first.join(", ")]],
  );
}

/** Shows all outputs in `place`. */
export function show(place, outputs, values, labels) {
  place.replaceChildren(
    ...outputs.flatMap((output) => {
      const title = document.createElement("h2");
      title.textContent = `${output.name} (${output.dtype} ${output.shape.join(" x ") || "scalar"})`;
      const array = values[output.name];
      return [title, isScores(output) ? top(array, labels) : summary(output, array)];
    }),
  );
}
