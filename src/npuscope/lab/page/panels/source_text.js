// Files as the Source panel shows them: as the run has them or, where a later save does not run, as that save has them.

const TAB = 4;

/** @typedef {{message: string, remedy: string, line: number}} Fault */
/**
 * `was` is the run's number of a line that is shown (0: the save added it), `now` the number under which a line of the run is shown.
 * @typedef {{name: string, text: string[] | null, left_out: number, faults: Fault[], was(line: number): number, now(line: number): number}} Shown
 */

const same = (/** @type {number} */ line) => line;

/** Tabs as the run's text has them. @param {string} line */
function expanded(line) {
  let found = "";
  for (const letter of line) found += letter === "\t" ? " ".repeat(TAB - (found.length % TAB)) : letter;
  return found;
}

/** Lines that two texts have in common at their beginning and at their end. @param {string[]} a @param {string[]} b */
function alike(a, b) {
  const most = Math.min(a.length, b.length);
  let head = 0,
    tail = 0;
  while (head < most && a[head] === b[head]) head++;
  while (tail < most - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  return { head, tail };
}

/** A file as it was saved, beside the run's text of it. @param {string} name @param {string} saved @param {string[] | null} before @param {Fault[]} faults @returns {Shown} */
function asSaved(name, saved, before, faults) {
  const text = saved
    .replace(/\r?\n$/, "")
    .split(/\r?\n/)
    .map(expanded);
  if (before === null) return { name, text, left_out: 0, faults, was: () => 0, now: () => 0 };
  const { head, tail } = alike(before, text),
    more = text.length - before.length;
  return {
    name,
    text,
    left_out: 0,
    faults,
    was: (line) => (line <= head ? line : line > text.length - tail ? line - more : 0),
    now: (line) => (line <= head ? line : line > before.length - tail ? line + more : 0),
  };
}

/**
 * The files of a run; `broken` is the save that does not run: its trouble, and its files by their paths.
 * @param {{name: string, text: string[] | null, left_out: number}[]} files @param {any} broken @returns {Shown[]}
 */
export function shownFiles(files, broken) {
  const own = files.map((file) => ({ ...file, faults: /** @type {Fault[]} */ ([]), was: same, now: same }));
  if (!broken) return own;
  /** @type {Map<string, Fault[]>} */
  const faults = new Map();
  for (const one of [broken.trouble, ...broken.trouble.more]) {
    if (one.line > 0 && broken.files[one.file] !== undefined)
      faults.set(one.file, [
        ...(faults.get(one.file) ?? []),
        { message: one.message, remedy: one.remedy ?? "", line: one.line },
      ]);
  }
  /** @type {Map<string, Shown>} */
  const saved = new Map();
  for (const [path, text] of /** @type {[string, string][]} */ (Object.entries(broken.files))) {
    const known = files.find((file) => path === file.name || path.endsWith(`/${file.name}`)),
      found = faults.get(path) ?? [];
    if (known) saved.set(known.name, asSaved(known.name, text, known.text, found));
    else if (found.length) saved.set(path, asSaved(path.split("/").at(-1) ?? path, text, null, found)); // the run has spent nothing on it
  }
  return [
    ...own.map((file) => saved.get(file.name) ?? file),
    ...[...saved].filter(([key]) => !files.some((file) => file.name === key)).map(([, file]) => file),
  ];
}
