// of the search: the page of a topic comes first, then the guide and recipes; what lists or explains follows, decisions last
// Words that people search for, by the page that answers them. search.py adds them to the index.
const SYNONYMS = {
  "coming-from/dataset": "dataloader dataset collate num_workers workers",
  "guide/columns": "nan null missing imputation impute categorical embedding static covariates covariate dtype string fillna",
  "guide/csv": "csv excel delimiter separator ambiguous daylight dst local",
  "guide/derived": "resample resampling upsample downsample lag lags rolling feature features expression differencing",
  "guide/devices": "gpu cuda device pinned pin_memory accelerator resident",
  "guide/events": "events irregular transactions clickstream point points label labels sum count aggregate",
  "guide/forecasting": "forecast forecasting multivariate exogenous future horizon predict prediction inference",
  "guide/on-disk": "save mmap disk larger file spill",
  "guide/orders": "shuffle seed sampler weighted sampling curriculum class imbalance imbalanced oversample deterministic reproducible",
  "guide/ranks": "batch size resume checkpoint ranks restart fault state_dict padding",
  "guide/shapes": "wide long pivot melt tidy",
  "guide/sharing": "memory share shared shm docker ram",
  "guide/sources": "parquet pandas polars arrow duckdb s3 delta iceberg filter partition",
  "guide/splits": "split test train cross validation leak leakage fold folds walk forward backtest embargo purge purged purging",
  "guide/transforms": "normalize normalization scaling scaler standardize minmax log revin augmentation units",
  "guide/windows": "gaps gap lookback window sliding stride context length mask history midnight daylight dst",
  "how-to/backtest": "backtest rolling origin evaluation walk forward mase mae naive baseline",
  "how-to/classification": "classification label classify class imbalance weights pos_weight ragged",
  "how-to/cross-sections": "graph stocks cross section panel",
  "how-to/forecasts-as-inputs": "known vintages revisions weather join merge",
  "how-to/huggingface": "huggingface transformers trainer accelerate",
  "how-to/lightning": "lightning fabric datamodule",
  "how-to/pretraining": "pretraining foundation packing varlen flash attention",
  "how-to/ray": "ray cluster",
  "how-to/scoring": "anomaly anomalies score detection",
  "how-to/serve": "serving serve inference production online api deploy latency cold start unseen unknown",
  "how-to/slow": "slow speed performance bottleneck profile",
  "how-to/torchrun": "ddp torchrun slurm distributed multi",
  "how-to/train": "train training loop early stopping tensorboard wandb mlflow logging log pinball quantile quantiles loss checkpoint dropout validation",
  "how-to/trading-days": "holidays trading calendar business timezone utc",
  "project/stability": "version versions compatibility upgrade",
  "start/faq": "license faq commercial windows macos ragged cold start",
  "start/install": "install pip conda wheel compiler",
  "start/concepts": "glossary terms entity anchor slot",
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
    const part = page.split("/")[0], words = (SYNONYMS[page] ?? "").split(" ");
    const more = { start: 13, guide: 14, "how-to": 12, decisions: -40, project: -40, architecture: -40, promises: -40 };
    return score + (more[part] ?? 0) + 40 * ASKED.filter((word) => words.includes(word)).length;
  },
};
