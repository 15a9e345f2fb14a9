// of the search: recipes and the guide come before what lists or explains, decisions come last
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
    const more = { start: 12, guide: 12, "how-to": 12, decisions: -40, project: -40, architecture: -40, promises: -40 };
    return score + (more[part] ?? 0);
  },
};
