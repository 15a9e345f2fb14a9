// of the search: the page of a topic comes first, then the guide and recipes; what lists or explains follows, decisions last
// each word is a keyword of its page too (synonyms.py), so that a search finds it there if the page has another word for it
const PAGES = {
  resume: "guide/ranks", checkpoint: "guide/ranks", shuffle: "guide/orders", seed: "guide/orders",
  ddp: "how-to/torchrun", known: "how-to/forecasts-as-inputs", nan: "guide/columns", categorical: "guide/columns",
  embedding: "guide/columns", covariates: "guide/columns", multivariate: "guide/columns", split: "guide/splits",
  test: "guide/splits", validation: "guide/splits", leak: "guide/splits", leakage: "guide/splits",
  gpu: "guide/devices", cuda: "guide/devices", memory: "guide/sharing", oom: "guide/on-disk", docker: "guide/sharing",
  save: "guide/on-disk", pandas: "guide/sources", polars: "guide/sources", parquet: "guide/sources",
  s3: "guide/sources", delta: "start/your-data", wide: "start/your-data", melt: "start/your-data",
  folder: "start/your-data", dataloader: "coming-from/dataset", num_workers: "coming-from/dataset",
  serving: "how-to/serve", inference: "how-to/serve", csv: "guide/csv", gaps: "guide/windows",
  lookback: "guide/windows", horizon: "guide/windows", stride: "guide/windows", normalize: "guide/transforms",
  normalization: "guide/transforms", standardize: "guide/transforms", imputation: "guide/derived",
  resample: "guide/derived", lag: "guide/derived", weights: "guide/orders", imbalanced: "guide/orders",
  sampler: "guide/orders", probabilistic: "guide/forecasting", predict: "guide/forecasting",
  anomaly: "how-to/scoring", detection: "how-to/scoring", outlier: "how-to/scoring", holidays: "how-to/trading-days",
  padding: "how-to/pretraining", loss: "reference/batches", timezone: "start/faq", license: "start/faq",
  windows: "guide/windows", sliding: "guide/windows",
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
