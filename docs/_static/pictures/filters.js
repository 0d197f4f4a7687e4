/* Filters of the table of claims; without this script the table shows all. */
(function () {
  'use strict';
  const table = document.getElementById('claims');
  const rows = Array.from(table.tBodies[0].rows);
  const form = document.createElement('form');
  form.className = 'filters';
  form.addEventListener('submit', (event) => event.preventDefault());
  const labelled = (name, control) => {
    const label = document.createElement('label');
    label.append(`${name} `, control);
    form.append(label);
    return control;
  };
  const chosen = ['paper', 'verdict', 'topic'].map((name) => {
    const select = labelled(name, document.createElement('select'));
    const values = [...new Set(rows.map((row) => row.dataset[name]))].sort();
    select.append(new Option('all', ''), ...values.map((value) => new Option(value, value)));
    return [name, select];
  });
  const words = labelled('words', document.createElement('input'));
  words.type = 'search';
  const count = document.createElement('p');
  count.setAttribute('role', 'status');
  const filter = () => {
    const wanted = words.value.toLowerCase();
    rows.forEach((row) => {
      const isRight = chosen.every(([name, select]) => !select.value || row.dataset[name] === select.value);
      row.hidden = !isRight || !row.textContent.toLowerCase().includes(wanted);
    });
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims shown`;
  };
  form.addEventListener('input', filter);
  table.before(form, count);
  filter();
}());
