"use strict";
// All that the service tells is put in as text, never as HTML.
const by = id => document.getElementById(id);
const known = new Map();  // the key of every entity that was ever suggested
let asking = 0, pictured = "";

async function ask(path, body) {
  const headers = by("token").value ? { authorization: `Bearer ${by("token").value}` } : {};
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  if (answer.ok) return answer;
  by("locked").hidden = answer.status !== 401 && by("locked").hidden;
  const told = await answer.json().catch(() => ({ error: { what: answer.statusText, fix: "" } }));
  throw new Error([told.error.what, told.error.fix].filter(Boolean).join(". "));
}

function fail(error) {
  by("error").textContent = error.message;
  by("error").hidden = false;
}

function item(tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

function number(value) {
  return typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(4) : String(value);
}

function show(told) {
  const row = told.predictions[0], names = Object.keys(row), key = names[0];
  by("who").textContent = row.name ? `${row.name} (${row[key]})` : `${key} ${row[key]}`;
  by("question").textContent = told.question;
  const main = row.calibrated ?? row.score ?? row.predicted;
  by("score").textContent = number(row.predicted ?? main);
  by("cells").replaceChildren(...names.slice(1).filter(name => name !== "name" && row[name] !== null)
    .flatMap(name => [item("dt", name), item("dd", number(row[name]))]));
  by("answer").hidden = false;
}

async function predict() {
  const mine = ++asking;
  const entity = known.get(by("entity").value) ?? by("entity").value.trim(), at = by("at").value.trim() || null;
  by("error").hidden = true;
  by("reasons").replaceChildren();
  by("waiting").hidden = false;
  try {
    const question = { entities: [entity], at };
    const told = await (await ask("predict", question)).json();
    if (mine !== asking) return;
    show(told);
    const query = new URLSearchParams({ entity, ...(at && { at }) });
    const picture = URL.createObjectURL(await (await ask(`context.svg?${query}`)).blob());
    if (mine === asking) {
      URL.revokeObjectURL(pictured);
      by("context").src = pictured = picture;
    }
    const why = await (await ask("predict", { ...question, explain: true })).json();
    if (mine === asking) by("reasons").replaceChildren(...why.explanations[0].reasons.map(text => item("li", text)));
  } catch (error) {
    if (mine === asking) fail(error);
  }
  if (mine === asking) by("waiting").hidden = true;
}

async function suggest() {
  const text = by("entity").value;
  try {
    const told = await (await ask(`entities?${new URLSearchParams({ search: text })}`)).json();
    if (text !== by("entity").value) return;
    by("found").replaceChildren(...told.entities.map(({ entity, name }) => {
      const option = document.createElement("option");
      option.value = name === null ? entity : `${name} (${entity})`;
      known.set(option.value, entity);
      return option;
    }));
  } catch { /* what is wrong is said when the question is asked */ }
}

async function describe() {
  try {
    const told = await (await ask("model")).json();
    document.title = by("task").textContent = told.task;
    by("about").textContent = [told.question, told.quality].filter(Boolean).join(". ");
    by("at").placeholder = told.last_time ?? "";
    await suggest();
  } catch (error) { fail(error); }
}

by("form").addEventListener("submit", event => { event.preventDefault(); predict(); });
by("entity").addEventListener("input", suggest);
by("token").addEventListener("change", () => { by("error").hidden = true; describe(); });
describe();
