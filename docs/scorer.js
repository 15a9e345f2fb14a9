// of the search: the page of a topic comes first, then the guide and recipes; what lists or explains follows, decisions last
const PAGES = {
  resume: "guide/ranks", checkpoint: "guide/ranks", shuffle: "guide/orders", seed: "guide/orders", ddp: "how-to/torchrun",
  known: "how-to/forecasts-as-inputs", nan: "guide/columns", categorical: "guide/columns",
  split: "guide/splits", test: "guide/splits", gpu: "guide/devices", cuda: "guide/devices", memory: "guide/sharing",
  save: "guide/on-disk", pandas: "guide/sources", polars: "guide/sources", parquet: "guide/sources",
  dataloader: "coming-from/dataset", serving: "how-to/serve", csv: "guide/csv", gaps: "guide/windows",
};
const ASKED = (new URLSearchParams(window.location.search).get("q") ?? "").toLowerCase().split(/\W+/);
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, title, anchor, descr, score]) => {
    const part = page.split("/")[0];
    const more = { start: 13, guide: 14, "how-to": 12, decisions: -40, project: -40, architecture: -40, promises: -40 };
    const first = ASKED.some((word) => PAGES[word] === page) ? 40 : 0;
    return score + (more[part] ?? 0) + first;
  },
};
