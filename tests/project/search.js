// The pages that the search of a built site finds for each query, the best first, as JSON: node search.js SITE QUERY...
const fs = require("fs"), vm = require("vm");
const [folder, ...queries] = process.argv.slice(2);
const text = ["_static/language_data.js", "_static/searchtools.js", "searchindex.js"].map((name) =>
  fs.readFileSync(`${folder}/${name}`, "utf-8").replace(/^const Search = /m, "var Search = "));
const found = queries.map((query) => {
  const context = { URLSearchParams, location: { search: `?q=${encodeURIComponent(query)}` }, console };
  Object.assign(context, { window: context, SPHINX_HIGHLIGHT_ENABLED: false, document: { getElementById() {} } });
  Object.assign(context, { _: (text) => text, _ready() {}, _removeChildren() {}, query });
  vm.createContext(context);
  for (const script of text) vm.runInContext(script, context);
  const results = vm.runInContext("Search._performSearch(...Search._parseQuery(query))", context);
  return [...new Set(results.reverse().map(([page]) => page))];
});
console.log(JSON.stringify(found));
